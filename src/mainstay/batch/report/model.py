"""The report of a batch as data: units, errors, outputs, and the outcome of each parameter set.

Everything is read from the stores. Start from `batch_report`; `batch_html` makes a page of it, `show_report` prints it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from ...control import Control
from ...errors import StoreError
from ...lifecycle import JOB, Event, table_of
from ...model import Job
from ...outputs import Manifest
from ...stores import Query, all_rows, shown_url
from ...words import counted
from .. import BatchService, BatchStatus, OutputStatus, UnitCounts
from ..validation_result import findings_in

#: failed units whose errors are read
_READ = 10_000
#: kinds of errors in the report
_KINDS = 50
#: defects in the report itself
_LISTED = 100
_PAGE = 1000
_STATES = ("present", "missing", "corrupt", "unreadable")
_NUMBER = re.compile(r"\b[0-9a-f]{8,}\b|\d+(?:\.\d+)?")
_PATH = re.compile(r"\S+/\S+")

Source = Literal["validation", "storage", "unknown"]
Level = Literal["all", "most", "half", "few", "none"]


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Units that failed with the same error."""

    type: str
    message: str
    """the message of one of them; others may differ in numbers"""
    units: int
    example: str
    """the name of one of these units"""
    id: str
    """its id"""


class OtherTroubles(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of units that are not listed."""

    kinds: int
    units: int

    def __str__(self) -> str:
        return f"{counted(self.kinds, 'more kind', 'more kinds')} of errors, of {counted(self.units, 'unit')}"


class ValidationCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one validation."""

    at_ms: int
    attempt: int
    verdict: str
    present: int = 0
    missing: int = 0
    corrupt: int = 0
    unreadable: int = 0


class SetOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one parameter set."""

    params: dict[str, Any]
    intact: int
    """units whose outputs are all present"""
    units: int

    @property
    def level(self) -> Level:
        return level_of(self.intact, self.units)


def level_of(intact: int, units: int) -> Level:
    """A share in words, for symbols and colours. Only a whole set is "all", and only 0 units are "none".

    >>> level_of(10, 10), level_of(9, 10), level_of(5, 10), level_of(1, 10), level_of(0, 10)
    ('all', 'most', 'half', 'few', 'none')
    """
    if intact == units:
        return "all"
    if not intact:
        return "none"
    share = intact / units
    return "most" if share >= 2 / 3 else "half" if share >= 1 / 3 else "few"


class OutputSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Expected outputs by state."""

    source: Source
    """validation: the last one; storage: names and sizes, if there was none; unknown: the storage does not answer"""
    expected: int
    present: int = 0
    missing: int = 0
    corrupt: int = 0
    unreadable: int = 0
    why: str = ""
    """the reason, if the source is unknown"""

    @property
    def lacking(self) -> int:
        return self.expected - self.present

    @property
    def gaps(self) -> list[str]:
        """What is wrong with outputs, each with its count."""
        counts = ((self.missing, "missing"), (self.corrupt, "corrupt"), (self.unreadable, "unreadable"))
        return [f"{n:,} {state}" for n, state in counts if n]


class BatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a batch."""

    id: str
    study: str
    code: str
    status: str
    reason: str
    settled: bool
    place: str
    """URL of the output store"""
    at_ms: int
    """time of the report"""
    submitted_ms: int
    began_ms: int | None
    ended_ms: int | None
    took_s: float
    """run time, without the time between an end and a resume"""
    rounds: int
    """number of starts: one, and one for each resume"""
    sets: int
    total: int
    """units of the study"""
    units: UnitCounts
    """since it was last started or resumed"""
    aggregations: dict[str, UnitCounts]
    outputs: OutputSummary
    lacking: list[OutputStatus]
    """the first defects"""
    troubles: list[Trouble]
    """the most frequent errors of units"""
    outcomes: list[SetOutcome]
    """of each parameter set; empty if the storage does not answer"""
    validations: list[ValidationCounts]
    other_troubles: OtherTroubles | None = None
    """a summary of the errors that are not in `troubles`"""
    resumed_from: str | None = None
    mixed: str = ""
    """a sentence if other code made some units, by the last validation"""
    runner: str = "local"

    @property
    def broken_sets(self) -> list[SetOutcome]:
        """Sets that lack outputs, the worst first."""
        broken = [one for one in self.outcomes if one.intact < one.units]
        return sorted(broken, key=lambda one: one.intact / one.units)


async def batch_report(service: BatchService, job_id: str, *, shown: Callable[[Job], Job] | None = None) -> BatchReport:
    """The report of a batch, settled or not. `shown` masks a failed unit before it is used."""
    status = await service.status(job_id)
    job, spec = status.job, status.spec
    events = await _events(service.control, job_id)
    starts = [event.at_ms for event in events if event.to == "running" and event.source != "running"]
    now_ms = service.control.store.clock.now_ms()
    state = table_of(None).get(job.status)
    settled = state is not None and state.settled
    outputs, lacking, outcomes = await _outcomes(service, status, settled=settled)
    failed = await _failed(service.control, job_id, since_ms=starts[-1] if starts else None)
    troubles = troubles_of(failed if shown is None else [shown(unit) for unit in failed])
    return BatchReport(
        id=job.id,
        study=spec.study,
        code=spec.code,
        status=job.status,
        reason=job.reason or "",
        settled=settled,
        place=shown_url(spec.outputs),
        at_ms=now_ms,
        submitted_ms=job.created_ms,
        began_ms=starts[0] if starts else None,
        ended_ms=job.settled_ms,
        took_s=took(events, now_ms),
        rounds=len(starts),
        sets=spec.sets,
        total=spec.units,
        units=status.units,
        aggregations={one.name: status.aggregations.get(one.name, UnitCounts()) for one in spec.aggregations},
        outputs=outputs,
        lacking=lacking[:_LISTED],
        troubles=troubles[:_KINDS],
        other_troubles=left_out(troubles[_KINDS:]),
        outcomes=outcomes,
        validations=await _validations(service, job_id, events),
        resumed_from=spec.resumed_from,
        mixed="" if status.validation is None else status.validation.mixed,
        runner=spec.runner.partition(":")[0],
    )


def troubles_of(units: Sequence[Job]) -> list[Trouble]:
    """The errors of failed units, the most frequent first. Errors that differ only in numbers, paths, digests or the
    name of the unit count as the same."""
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], Job] = {}
    for unit in units:
        kind = unit.error.type if unit.error else unit.status
        key = kind, _normalized(unit)
        counts[key] += 1
        examples.setdefault(key, unit)
    return [
        Trouble(
            type=key[0],
            message=_message(examples[key]),
            units=n,
            example=examples[key].unit or examples[key].name,
            id=examples[key].id,
        )
        for key, n in counts.most_common()
    ]


def left_out(left: Sequence[Trouble]) -> OtherTroubles | None:
    """A summary of errors that are not listed."""
    return OtherTroubles(kinds=len(left), units=sum(one.units for one in left)) if left else None


def _normalized(unit: Job) -> str:
    """The message without the parts that differ between units."""
    message = _message(unit)
    if unit.unit:
        message = message.replace(unit.unit, "#")
    return _NUMBER.sub("#", _PATH.sub("#", message))


def _message(unit: Job) -> str:
    return (unit.error.message if unit.error else unit.reason) or ""


def took(events: Sequence[Event], now_ms: int) -> float:
    """Run time in seconds: from each start to the end that followed, or until now."""
    total, began = 0, None
    settled = set(JOB.named("settled"))
    for event in events:
        if event.to == "running" and began is None:
            began = event.at_ms
        elif event.to in settled and began is not None:
            total, began = total + event.at_ms - began, None
    return (total + (0 if began is None else now_ms - began)) / 1000


async def _events(control: Control, job_id: str) -> list[Event]:
    events: list[Event] = []
    while page := await control.jobs.events(job_id, after=events[-1].seq if events else 0, limit=_PAGE):
        events += page
        if len(page) < _PAGE:
            break
    return events


async def _validations(service: BatchService, job_id: str, events: Sequence[Event]) -> list[ValidationCounts]:
    """From the audit trail and the records beside the outputs: a final batch only adds records."""
    validations = [look for event in events if (look := _looked(event)) is not None]
    validations += [
        msgspec.convert(one, ValidationCounts, from_attributes=True) for one in await service.validations(job_id)
    ]
    return sorted({one.at_ms: one for one in validations}.values(), key=lambda one: one.at_ms)


def _looked(event: Event) -> ValidationCounts | None:
    counts = event.data.get("validation")
    try:
        return None if counts is None else msgspec.convert(counts, ValidationCounts)
    except msgspec.ValidationError:  # written by another version
        return None


async def _failed(control: Control, job_id: str, *, since_ms: int | None) -> list[Job]:
    """Units that failed since the last start: earlier ones were resumed."""
    query = Query(parent=job_id, status=("failed", "timed_out"), created_from_ms=since_ms)
    failed: list[Job] = []
    async for unit in all_rows(control.store, query):
        failed.append(unit)
        if len(failed) == _READ:
            break
    return failed


async def _outcomes(
    service: BatchService, status: BatchStatus, *, settled: bool
) -> tuple[OutputSummary, list[OutputStatus], list[SetOutcome]]:
    """The outputs by state, their defects, and the outcome of each parameter set."""
    expected, validation = status.spec.expected, status.validation
    try:
        manifest = await service.manifest(status.job.id)
        if not settled or validation is None:
            return await _by_storage(service, status, manifest)
        lacking = await _listed(service, status.job.id)
    except StoreError as error:
        return OutputSummary(source="unknown", expected=expected, why=str(error)[:500]), [], []
    counts = {state: getattr(validation, state) for state in _STATES}
    summary = OutputSummary(source="validation", expected=expected, **counts)
    broken = {one.index for one in lacking if one.group == 0}
    return summary, lacking, _by_set(manifest, broken)


async def _listed(service: BatchService, job_id: str) -> list[OutputStatus]:
    defects: list[OutputStatus] = []
    page = 0
    while page_of_defects := await service.lacking(job_id, page=page):
        defects += page_of_defects
        page += 1
    return defects


async def _by_storage(
    service: BatchService, status: BatchStatus, manifest: Manifest
) -> tuple[OutputSummary, list[OutputStatus], list[SetOutcome]]:
    store = await service.store(status.job.id)
    states = dict.fromkeys(_STATES, 0)
    broken: set[int] = set()
    for number, group in enumerate(manifest.groups):
        async for index, findings in findings_in(store, group, verify="size"):
            for finding in findings.outputs.values():
                states[finding.state] += 1
            if number == 0 and not findings.whole:
                broken.add(index)
    summary = OutputSummary(source="storage", expected=status.spec.expected, why="", **states)
    return summary, [], [] if states["unreadable"] else _by_set(manifest, broken)


def _by_set(manifest: Manifest, broken: set[int]) -> list[SetOutcome]:
    units = manifest.groups[0]
    whole, total = [0] * len(units.params), [0] * len(units.params)
    for index, (row, _) in enumerate(units.pairs):
        total[row] += 1
        whole[row] += index not in broken
    return [SetOutcome(params=params, intact=whole[row], units=total[row]) for row, params in enumerate(units.params)]
