"""The manifest of a batch: its units, then what is made of them."""

from __future__ import annotations

import hashlib
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import InvalidInput, PayloadTooLarge
from ..outputs import Manifest, ManifestGroup, Unit
from .study import Aggregation, Batch, Over

#: of the payload of a unit, for all but its parameters: names, the URL of its outputs, what a codec adds
_ROOM = 4096


def groups_of(study: Batch, sets: Sequence[dict[str, Any]], seeds: Sequence[int | None]) -> list[ManifestGroup]:
    """The units of a study; then, for each aggregation, its own. Refuses a set that is there twice."""
    sets = [study.unit.stored(params) for params in sets]
    _check_sizes(study, sets)
    units = ManifestGroup.of((Unit(study.name, study.code, one, seed) for one in sets for seed in seeds), study.outputs)
    if len(units.params) < len(sets):
        raise InvalidInput("params", f"{len(sets) - len(units.params)} of the {len(sets)} sets are there twice")
    groups = [units]
    for aggregation in study.aggregations:
        groups.append(_aggregated(study, aggregation, groups[-1], seeds))
    return groups


def _check_sizes(study: Batch, sets: Sequence[dict[str, Any]]) -> None:
    """Each unit carries its parameters: one that could not be stored is refused before anything is."""
    limit = study.client.settings.payload_limit
    for index, one in enumerate(sets):
        size = len(msgspec.msgpack.encode(one))
        if size + _ROOM > limit:
            raise PayloadTooLarge(
                f"params[{index}]",
                f"a set of {size:,} bytes does not fit into the payload limit of {limit:,}, with {_ROOM:,} for the "
                "rest of a unit; keep the data in a file, and a reference to it in the parameters",
            )


def _aggregated(
    study: Batch, aggregation: Aggregation, inputs: ManifestGroup, seeds: Sequence[int | None]
) -> ManifestGroup:
    code = code_of_aggregation(study.code, aggregation, inputs, seeds)
    name = f"{study.name}.{aggregation.name}"
    sets: Sequence[dict[str, Any]] = inputs.params if aggregation.over == "set" else [{}]
    return ManifestGroup.of((Unit(name, code, one) for one in sets), aggregation.outputs)


def code_of_aggregation(
    study_code: str, aggregation: Aggregation, inputs: ManifestGroup, seeds: Sequence[int | None]
) -> str:
    """Part of the address of what it makes: the code that makes it, and all that it is made of."""
    of: list[Any] = [study_code, aggregation.code, list(seeds)]
    if aggregation.over == "all":
        of.append([inputs.study, inputs.code, inputs.params])
    return hashlib.sha256(msgspec.msgpack.encode(of)).hexdigest()[:12]


def inputs_of(manifest: Manifest, group: int, index: int, *, over: Over) -> ManifestGroup:
    """What one aggregation is made of."""
    inputs = manifest.groups[group - 1]
    if over == "all":
        return inputs
    return msgspec.structs.replace(inputs, pairs=_pairs_of(inputs, index))


def seeds_of(manifest: Manifest) -> list[int | None]:
    """The seeds of each set."""
    return [seed for _, seed in _pairs_of(manifest.groups[0], 0)]


def _pairs_of(group: ManifestGroup, row: int) -> list[tuple[int, int | None]]:
    """Those of one set stand together, in the order of the sets: each of 100,000 is found without a look at all."""
    first, last = (side(group.pairs, row, key=operator.itemgetter(0)) for side in (bisect_left, bisect_right))
    return group.pairs[first:last]


def digest_of_inputs(contents: Sequence[str]) -> str:
    """Of their contents (`Seen.contents`): differs when one came out otherwise; empty if that cannot be told."""
    return hashlib.sha256("\n".join(contents).encode()).hexdigest()[:16] if all(contents) else ""


def digest_of(groups: Sequence[ManifestGroup]) -> str:
    """The same for the same work, whoever submits it and when."""
    return hashlib.sha256(msgspec.msgpack.encode(groups)).hexdigest()[:32]
