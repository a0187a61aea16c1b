"""The units to run: for each group of the manifest, the units whose outputs are missing or corrupt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from ..control import JobRequest, Plan
from ..errors import StoreError
from ..outputs import Manifest, OutputStore, Unit, UnitFindings
from ..task import Sealer
from .manifests import digest_of_inputs
from .spec import UNIT, Spec, UnitCall, row_name
from .validation_result import chunks, findings_in

#: field of an aggregation's entry: a digest of its inputs
MADE_OF = "made_of"


class PlannedUnit(msgspec.Struct, frozen=True):
    """A unit, and why it is run or not."""

    index: int
    unit: Unit
    run: bool
    why: str
    again: bool = False
    """ignore its existing outputs"""
    unreadable: StoreError | None = None
    """why its outputs could not be checked: it is unknown whether it has to run"""


async def planned_units(
    store: OutputStore, manifest: Manifest, spec: Spec, group: int, *, force: bool = False, fresh: bool = False
) -> AsyncIterator[PlannedUnit]:
    """Every unit of a group. A unit that cannot be checked is neither run nor done. Raises `StoreError` if inputs of an
    aggregation cannot be checked."""
    ready = await _ready(store, manifest, spec, group, fresh=fresh)
    expected = manifest.groups[group]
    for start, units in chunks(expected):
        if force:
            for index, unit in enumerate(units, start):
                yield PlannedUnit(index, unit, ready is None or index in ready, "made again, as requested", again=True)
            continue
        checked = await store.look(units, expected.outputs, verify=spec.verify, fresh=fresh)
        outdated = set() if ready is None else await _outdated(store, checked, start, ready)
        for index, findings in enumerate(checked, start):
            if (error := unreadable(findings)) is not None:
                yield PlannedUnit(index, findings.unit, False, f"cannot be checked: {error}", unreadable=error)
                continue
            why = defects_of(findings)
            if why and ready is not None and index not in ready:
                yield PlannedUnit(index, findings.unit, False, "its inputs are incomplete")
            elif index in outdated:
                yield PlannedUnit(index, findings.unit, True, "its inputs have changed since it was made", again=True)
            else:
                yield PlannedUnit(index, findings.unit, bool(why), why)


async def _ready(
    store: OutputStore, manifest: Manifest, spec: Spec, group: int, *, fresh: bool
) -> Mapping[int, str] | None:
    """The aggregations with complete inputs: a digest of the inputs by index. None for simulations."""
    if group == 0:
        return None
    inputs = manifest.groups[group - 1]
    over = spec.aggregations[group - 1].over
    contents: dict[int, list[str]] = {}
    lacking: set[int] = set()
    async for place, findings in findings_in(store, inputs, verify=spec.verify, fresh=fresh):
        index = 0 if over == "all" else inputs.pairs[place][0]
        contents.setdefault(index, []).append(findings.contents)
        if defects_of(findings):
            lacking.add(index)
    return {index: digest_of_inputs(of) for index, of in contents.items() if index not in lacking}


async def _outdated(
    store: OutputStore, checked: Sequence[UnitFindings], start: int, ready: Mapping[int, str]
) -> set[int]:
    """The indexes of aggregations that were made of other inputs than the current ones. Those without a digest of their
    inputs count as current."""
    present = [
        (index, findings.unit) for index, findings in enumerate(checked, start) if findings.whole and ready.get(index)
    ]
    noted = await store.notes([unit for _, unit in present])
    return {
        index
        for (index, _), notes in zip(present, noted, strict=True)
        if notes.get(MADE_OF, ready[index]) != ready[index]
    }


def unreadable(findings: UnitFindings) -> StoreError | None:
    """Why a unit cannot be checked; None if it can."""
    for finding in findings.outputs.values():
        if finding.state == "unreadable":
            return finding.error or StoreError(finding.detail)
    return None


def defects_of(findings: UnitFindings) -> str:
    """What is wrong with the outputs of a unit; empty if they are intact."""
    if findings.whole:
        return ""
    if (error := unreadable(findings)) is not None:
        raise error
    return "; ".join(
        f"{name} is {finding.state}" + (f" ({finding.detail})" if finding.detail else "")
        for name, finding in findings.outputs.items()
        if finding.state != "present"
    )


def request_of(
    spec: Spec, parent: str, group: int, planned: PlannedUnit, sealer: Sealer, *, queue: str | None = None
) -> JobRequest:
    """The request for the row of a unit."""
    unit = planned.unit
    role = UNIT if group == 0 else spec.aggregations[group - 1].name
    call = UnitCall(
        group,
        planned.index,
        unit.study,
        unit.code,
        dict(unit.params),
        unit.seed,
        spec.outputs,
        spec.verify,
        force=planned.again,
        run_by=spec.run_by,
    )
    name = unit.label if group == 0 else f"{role} {unit.label}"
    plan: Plan = msgspec.structs.replace(
        spec.plan, parent=parent, unit=name, kind="batch", queue=queue or spec.plan.queue
    )
    return JobRequest(row_name(spec.study, role), msgspec.Raw(sealer.seal(msgspec.msgpack.encode(call))), plan)
