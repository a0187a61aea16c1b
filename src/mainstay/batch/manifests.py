"""The manifest of a batch: its units, then its aggregations."""

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

#: room in the payload of a unit besides its parameters: names, the URL of the outputs, what a codec adds
_ROOM = 4096


def groups_of(study: Batch, sets: Sequence[dict[str, Any]], seeds: Sequence[int | None]) -> list[ManifestGroup]:
    """The units of a study, then those of each aggregation. Refuses duplicate sets."""
    sets = [study.unit.stored(params) for params in sets]
    _check_sizes(study, sets)
    units = ManifestGroup.of((Unit(study.name, study.code, one, seed) for one in sets for seed in seeds), study.outputs)
    if len(units.params) < len(sets):
        raise InvalidInput("params", f"{len(sets) - len(units.params)} of the {len(sets)} sets are duplicates")
    groups = [units]
    for aggregation in study.aggregations:
        groups.append(_aggregated(study, aggregation, groups[-1], seeds))
    return groups


def _check_sizes(study: Batch, sets: Sequence[dict[str, Any]]) -> None:
    """Refuse sets that do not fit into the payload of a unit, before anything is stored."""
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
    """The code of an aggregation, part of the address of its outputs: its own code and its inputs."""
    of: list[Any] = [study_code, aggregation.code, list(seeds)]
    if aggregation.over == "all":
        of.append([inputs.study, inputs.code, inputs.params])
    return hashlib.sha256(msgspec.msgpack.encode(of)).hexdigest()[:12]


def inputs_of(manifest: Manifest, group: int, index: int, *, over: Over) -> ManifestGroup:
    """The inputs of one aggregation."""
    inputs = manifest.groups[group - 1]
    if over == "all":
        return inputs
    return msgspec.structs.replace(inputs, pairs=_pairs_of(inputs, index))


def seeds_of(manifest: Manifest) -> list[int | None]:
    """The seeds of each set."""
    return [seed for _, seed in _pairs_of(manifest.groups[0], 0)]


def _pairs_of(group: ManifestGroup, row: int) -> list[tuple[int, int | None]]:
    """The pairs of one set, by bisection: they are sorted by set, and there may be 100,000."""
    first, last = (side(group.pairs, row, key=operator.itemgetter(0)) for side in (bisect_left, bisect_right))
    return group.pairs[first:last]


def digest_of_inputs(contents: Sequence[str]) -> str:
    """A digest of their contents (`UnitFindings.contents`); empty if a content is not known."""
    return hashlib.sha256("\n".join(contents).encode()).hexdigest()[:16] if all(contents) else ""


def digest_of(groups: Sequence[ManifestGroup]) -> str:
    """A digest of the work, independent of who submits it and when."""
    return hashlib.sha256(msgspec.msgpack.encode(groups)).hexdigest()[:32]
