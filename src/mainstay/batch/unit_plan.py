"""What is to be run: for each group of the manifest, the units whose outputs are not there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from ..control import JobRequest, Plan
from ..errors import StoreError
from ..outputs import Manifest, OutputStore, Unit
from ..outputs.lookup import UnitFindings
from ..task.codec import Sealer
from .manifests import digest_of_inputs
from .spec import UNIT, Spec, UnitCall, row_name
from .validation_result import chunks, seen_in

#: field of an aggregation's entry: a digest of what it was made of
MADE_OF = "made_of"


class PlannedUnit(msgspec.Struct, frozen=True):
    """A unit, and why it is to be run or left alone."""

    index: int
    unit: Unit
    run: bool
    why: str
    anew: bool = False
    """what is there of it does not count"""
    unreadable: StoreError | None = None
    """why it could not be looked at: it is not known then whether it has to run"""


async def planned_units(
    store: OutputStore, manifest: Manifest, spec: Spec, group: int, *, force: bool = False, fresh: bool = False
) -> AsyncIterator[PlannedUnit]:
    """Every unit of a group. One that cannot be looked at is neither run nor taken as done; the others go on. Raises
    the `StoreError` of an aggregation's inputs that cannot be looked at."""
    ready = await _ready(store, manifest, spec, group, fresh=fresh)
    wanted = manifest.groups[group]
    for start, units in chunks(wanted):
        if force:
            for index, unit in enumerate(units, start):
                yield PlannedUnit(index, unit, ready is None or index in ready, "made again, as requested", anew=True)
            continue
        looked = await store.look(units, wanted.outputs, verify=spec.verify, fresh=fresh)
        outdated = set() if ready is None else await _outdated(store, looked, start, ready)
        for index, seen in enumerate(looked, start):
            if (error := unreadable(seen)) is not None:
                yield PlannedUnit(index, seen.unit, False, f"cannot be looked at: {error}", unreadable=error)
                continue
            why = lacks(seen)
            if why and ready is not None and index not in ready:
                yield PlannedUnit(index, seen.unit, False, "its inputs are incomplete")
            elif index in outdated:
                yield PlannedUnit(index, seen.unit, True, "its inputs came out otherwise since it was made", anew=True)
            else:
                yield PlannedUnit(index, seen.unit, bool(why), why)


async def _ready(
    store: OutputStore, manifest: Manifest, spec: Spec, group: int, *, fresh: bool
) -> Mapping[int, str] | None:
    """For an aggregation: the places of those whose inputs are all there, with a digest of these; None: it needs
    none."""
    if group == 0:
        return None
    inputs = manifest.groups[group - 1]
    over = spec.aggregations[group - 1].over
    contents: dict[int, list[str]] = {}
    lacking: set[int] = set()
    async for place, seen in seen_in(store, inputs, verify=spec.verify, fresh=fresh):
        index = 0 if over == "all" else inputs.pairs[place][0]
        contents.setdefault(index, []).append(seen.contents)
        if lacks(seen):
            lacking.add(index)
    return {index: digest_of_inputs(of) for index, of in contents.items() if index not in lacking}


async def _outdated(
    store: OutputStore, looked: Sequence[UnitFindings], start: int, ready: Mapping[int, str]
) -> set[int]:
    """The places of aggregations that are there, and were made of something else than what is there now. Where nobody
    knows what they were made of they are taken as they are."""
    there = [(index, seen.unit) for index, seen in enumerate(looked, start) if seen.whole and ready.get(index)]
    noted = await store.notes([unit for _, unit in there])
    return {
        index
        for (index, _), notes in zip(there, noted, strict=True)
        if notes.get(MADE_OF, ready[index]) != ready[index]
    }


def unreadable(seen: UnitFindings) -> StoreError | None:
    """Why a unit cannot be looked at; None if it can."""
    for finding in seen.outputs.values():
        if finding.state == "unreadable":
            return finding.error or StoreError(finding.detail)
    return None


def lacks(seen: UnitFindings) -> str:
    """What is wrong with a unit, in a few words; nothing if it is whole."""
    if seen.whole:
        return ""
    if (error := unreadable(seen)) is not None:
        raise error
    return "; ".join(
        f"{name} is {finding.state}" + (f" ({finding.detail})" if finding.detail else "")
        for name, finding in seen.outputs.items()
        if finding.state != "present"
    )


def request_of(
    spec: Spec, parent: str, group: int, wanted: PlannedUnit, sealer: Sealer, *, queue: str | None = None
) -> JobRequest:
    """The row of one unit."""
    unit = wanted.unit
    role = UNIT if group == 0 else spec.aggregations[group - 1].name
    call = UnitCall(
        group,
        wanted.index,
        unit.study,
        unit.code,
        dict(unit.params),
        unit.seed,
        spec.outputs,
        spec.verify,
        force=wanted.anew,
        run_by=spec.run_by,
    )
    name = unit.label if group == 0 else f"{role} {unit.label}"
    plan: Plan = msgspec.structs.replace(
        spec.plan, parent=parent, unit=name, kind="batch", queue=queue or spec.plan.queue
    )
    return JobRequest(row_name(spec.study, role), msgspec.Raw(sealer.seal(msgspec.msgpack.encode(call))), plan)
