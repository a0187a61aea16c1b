"""The manifest of a batch: its units, then what is made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import InvalidInput
from ..outputs import Group, Manifest, Unit
from .study import Aggregation, Batch, Over


def groups_of(study: Batch, sets: Sequence[dict[str, Any]], seeds: Sequence[int | None]) -> list[Group]:
    """The units of a study; then, for each aggregation, its own. Refuses a set that is there twice."""
    for params in sets:
        study.unit.params(params)
    units = Group.of((Unit(study.name, study.code, one, seed) for one in sets for seed in seeds), study.outputs)
    if len(units.params) < len(sets):
        raise InvalidInput("params", f"{len(sets) - len(units.params)} of the {len(sets)} sets are there twice")
    groups = [units]
    for aggregation in study.aggregations:
        groups.append(_aggregated(study, aggregation, groups[-1], seeds))
    return groups


def _aggregated(study: Batch, aggregation: Aggregation, inputs: Group, seeds: Sequence[int | None]) -> Group:
    """Their address holds the code that made them and all that they are made of."""
    of: list[Any] = [study.code, aggregation.code, list(seeds)]
    if aggregation.over == "all":
        of.append([inputs.study, inputs.code, inputs.params])
    code = hashlib.sha256(msgspec.msgpack.encode(of)).hexdigest()[:12]
    name = f"{study.name}.{aggregation.name}"
    sets: Sequence[dict[str, Any]] = inputs.params if aggregation.over == "set" else [{}]
    return Group.of((Unit(name, code, one) for one in sets), aggregation.outputs)


def inputs_of(manifest: Manifest, group: int, index: int, *, over: Over) -> Group:
    """What one aggregation is made of."""
    inputs = manifest.groups[group - 1]
    if over == "all":
        return inputs
    return msgspec.structs.replace(inputs, pairs=[pair for pair in inputs.pairs if pair[0] == index])


def digest_of(groups: Sequence[Group]) -> str:
    """The same for the same work, whoever submits it and when."""
    return hashlib.sha256(msgspec.msgpack.encode(groups)).hexdigest()[:32]
