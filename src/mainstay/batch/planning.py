"""What is to be run: for each group of the manifest, the units whose outputs are not there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

import msgspec

from ..control import Plan, Request
from ..errors import StoreError
from ..outputs import Manifest, OutputStore, Unit
from ..outputs.looking import Seen
from ..task.sealing import Sealer
from .findings import chunks, seen_in
from .spec import UNIT, Spec, UnitCall, row_name


class Wanted(msgspec.Struct, frozen=True):
    """A unit, and why it is to be run or left alone."""

    index: int
    unit: Unit
    run: bool
    why: str


async def wanted_in(
    store: OutputStore, manifest: Manifest, spec: Spec, group: int, *, force: bool = False, fresh: bool = False
) -> AsyncIterator[Wanted]:
    """Every unit of a group. Raises the `StoreError` of what cannot be looked at: nobody knows then what is missing."""
    ready = await _ready(store, manifest, spec, group, fresh=fresh)
    if force:
        for start, units in chunks(manifest.groups[group]):
            for index, unit in enumerate(units, start):
                yield Wanted(index, unit, _is_ready(ready, index), "made anew, as asked")
        return
    async for index, seen in seen_in(store, manifest.groups[group], verify=spec.verify, fresh=fresh):
        why = lacks(seen)
        if why and not _is_ready(ready, index):
            yield Wanted(index, seen.unit, False, "its inputs are incomplete")
        else:
            yield Wanted(index, seen.unit, bool(why), why)


async def _ready(
    store: OutputStore, manifest: Manifest, spec: Spec, group: int, *, fresh: bool
) -> Collection[int] | None:
    """For an aggregation: the places of those whose inputs are all there; None: it needs none."""
    if group == 0:
        return None
    lacking: set[int] = set()
    inputs = manifest.groups[group - 1]
    over = spec.aggregations[group - 1].over
    async for place, seen in seen_in(store, inputs, verify=spec.verify, fresh=fresh):
        if lacks(seen):
            lacking.add(0 if over == "all" else inputs.pairs[place][0])
    return set(range(len(manifest.groups[group].pairs))) - lacking


def _is_ready(ready: Collection[int] | None, index: int) -> bool:
    return ready is None or index in ready


def lacks(seen: Seen) -> str:
    """What is wrong with a unit, in a few words; nothing if it is whole."""
    if seen.whole:
        return ""
    for finding in seen.outputs.values():
        if finding.state == "unreadable":
            raise finding.error or StoreError(finding.detail)
    return "; ".join(
        f"{name} is {finding.state}" + (f" ({finding.detail})" if finding.detail else "")
        for name, finding in seen.outputs.items()
        if finding.state != "present"
    )


def request_of(
    spec: Spec, parent: str, group: int, wanted: Wanted, sealer: Sealer, *, force: bool, queue: str | None = None
) -> Request:
    """The row of one unit."""
    unit = wanted.unit
    role = UNIT if group == 0 else spec.aggregations[group - 1].name
    call = UnitCall(
        group, wanted.index, unit.study, unit.code, dict(unit.params), unit.seed, spec.outputs, spec.verify, force
    )
    name = unit.readable if group == 0 else f"{role} {unit.readable}"
    plan: Plan = msgspec.structs.replace(
        spec.plan, parent=parent, unit=name, kind="batch", queue=queue or spec.plan.queue
    )
    return Request(row_name(spec.study, role), msgspec.Raw(sealer.seal(msgspec.msgpack.encode(call))), plan)
