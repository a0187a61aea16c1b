"""The report of a batch, as data: what ran, what failed, what is there, and how each set of parameters came out.

Everything is read from the stores, when it is asked for. Start from `batch_report`; `batch_html` makes a page of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from ...control import Control
from ...control.explain import Advice
from ...errors import StoreError
from ...lifecycle import JOB, Event, table_of
from ...model import Job
from ...outputs import Manifest
from ...stores import Query, shown_url
from ...words import counted
from .. import BatchService, BatchStatus, OutputDefect, UnitCounts
from ..advice import batch_advice
from ..validation_result import seen_in

#: failed units that are read for their errors
_READ = 10_000
#: kinds of error that are told
_KINDS = 50
#: of what is lacking, so many are in the report itself
_LISTED = 100
_PAGE = 1000
_NUMBER = re.compile(r"\b[0-9a-f]{8,}\b|\d+(?:\.\d+)?")
_PATH = re.compile(r"\S+/\S+")

Source = Literal["validation", "storage", "unknown"]
Level = Literal["all", "most", "half", "few", "none"]


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Units that failed alike."""

    type: str
    message: str
    """of one of them; the others differ in numbers at most"""
    units: int
    example: str
    """the name of a unit that failed so"""
    id: str
    """its id"""


class OtherTroubles(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of units beyond those that are listed."""

    kinds: int
    units: int

    def __str__(self) -> str:
        return f"{counted(self.kinds, 'more kind', 'more kinds')} of errors, of {counted(self.units, 'unit')}"


class ValidationCounts(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the outputs."""

    at_ms: int
    attempt: int
    verdict: str
    present: int = 0
    missing: int = 0
    corrupt: int = 0
    unreadable: int = 0


class SetOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one set of parameters came out."""

    params: dict[str, Any]
    intact: int
    """units all of whose outputs are there"""
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
    """Expected outputs by what is there of them."""

    source: Source
    """the last validation; or a look at names and sizes, where there was none; unknown: nobody could look"""
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
    """What became of a batch."""

    id: str
    study: str
    code: str
    status: str
    reason: str
    settled: bool
    place: str
    """where the outputs are"""
    at_ms: int
    """when this was written"""
    submitted_ms: int
    began_ms: int | None
    ended_ms: int | None
    took_s: float
    """at work, from each start to the end that followed; the waits in between do not count"""
    rounds: int
    """how often it was started: once, and once for each resume"""
    sets: int
    total: int
    """units of the study"""
    units: UnitCounts
    """since it was last started or resumed"""
    aggregations: dict[str, UnitCounts]
    outputs: OutputSummary
    lacking: list[OutputDefect]
    """the first of them"""
    troubles: list[Trouble]
    """the most frequent errors of units"""
    outcomes: list[SetOutcome]
    """of each set of parameters; empty where nobody could look"""
    validations: list[ValidationCounts]
    other_troubles: OtherTroubles | None = None
    """what `troubles` leaves out"""
    resumed_from: str | None = None
    mixed: str = ""
    """that units were made by other code than it was submitted with, in words; by its last validation"""
    runner: str = "local"

    @property
    def broken_sets(self) -> list[SetOutcome]:
        """Sets that lack outputs, the worst first."""
        broken = [one for one in self.outcomes if one.intact < one.units]
        return sorted(broken, key=lambda one: one.intact / one.units)


def advice_for(job_id: str, status: str, *, lacking: int) -> list[Advice]:
    """What a person can do about a batch now, settled or not."""
    state = table_of(None).get(status)
    if state is not None and not state.settled:
        return [Advice(why="look on while it goes on", command=f"mainstay jobs status {job_id} --watch")]
    return batch_advice(job_id, status, lacking=lacking)


async def batch_report(service: BatchService, job_id: str, *, told: Callable[[Job], Job] | None = None) -> BatchReport:
    """The report of a batch, settled or not; `told` makes of a unit that failed what may be told of it."""
    status = await service.status(job_id)
    job, spec = status.job, status.spec
    events = await _events(service.control, job_id)
    starts = [event.at_ms for event in events if event.to == "running" and event.source != "running"]
    now_ms = service.control.store.clock.now_ms()
    state = table_of(None).get(job.status)
    settled = state is not None and state.settled
    found, lacking, outcomes = await _outcomes(service, status, settled=settled)
    failed = await _failed(service.control, job_id, since_ms=starts[-1] if starts else None)
    troubles = troubles_of(failed if told is None else [told(unit) for unit in failed])
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
        outputs=found,
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
    """The errors of failed units, the most frequent first. Those that differ only in numbers, paths, digests or the
    name of the unit count as the same."""
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], Job] = {}
    for unit in units:
        kind = unit.error.type if unit.error else unit.status
        key = kind, _alike(unit)
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


def _alike(unit: Job) -> str:
    """The message without what is of this unit alone."""
    message = _message(unit)
    if unit.unit:
        message = message.replace(unit.unit, "#")
    return _NUMBER.sub("#", _PATH.sub("#", message))


def _message(unit: Job) -> str:
    return (unit.error.message if unit.error else unit.reason) or ""


def took(events: Sequence[Event], now_ms: int) -> float:
    """Seconds at work: from each start to the end that followed, or until now."""
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
    """From the audit trail and from the records beside the outputs: of a batch that is final, only those go on."""
    found = [look for event in events if (look := _looked(event)) is not None]
    found += [msgspec.convert(one, ValidationCounts, from_attributes=True) for one in await service.validations(job_id)]
    return sorted({one.at_ms: one for one in found}.values(), key=lambda one: one.at_ms)


def _looked(event: Event) -> ValidationCounts | None:
    told = event.data.get("validation")
    try:
        return None if told is None else msgspec.convert(told, ValidationCounts)
    except msgspec.ValidationError:  # written by another version
        return None


async def _failed(control: Control, job_id: str, *, since_ms: int | None) -> list[Job]:
    """Units that failed since it was last started: what failed before has been resumed."""
    query = Query(parent=job_id, status=("failed", "timed_out"), created_from_ms=since_ms)
    found: list[Job] = []
    cursor: str | None = None
    while len(found) < _READ:
        page = await control.store.find(query, cursor=cursor, limit=_PAGE)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            break
    return found


async def _outcomes(
    service: BatchService, status: BatchStatus, *, settled: bool
) -> tuple[OutputSummary, list[OutputDefect], list[SetOutcome]]:
    """What is there of the outputs, what is not, and how each set of parameters came out."""
    expected, validation = status.spec.expected, status.validation
    try:
        manifest = await service.manifest(status.job.id)
        if not settled or validation is None:
            return await _by_looking(service, status, manifest)
        lacking = await _listed(service, status.job.id)
    except StoreError as error:
        return OutputSummary(source="unknown", expected=expected, why=str(error)[:500]), [], []
    found = OutputSummary(
        source="validation",
        expected=expected,
        present=validation.present,
        missing=validation.missing,
        corrupt=validation.corrupt,
        unreadable=validation.unreadable,
    )
    broken = {one.index for one in lacking if one.group == 0}
    return found, lacking, _by_set(manifest, broken)


async def _listed(service: BatchService, job_id: str) -> list[OutputDefect]:
    found: list[OutputDefect] = []
    page = 0
    while some := await service.lacking(job_id, page=page):
        found += some
        page += 1
    return found


async def _by_looking(
    service: BatchService, status: BatchStatus, manifest: Manifest
) -> tuple[OutputSummary, list[OutputDefect], list[SetOutcome]]:
    store = await service.store(status.job.id)
    states: Counter[str] = Counter()
    broken: set[int] = set()
    for number, group in enumerate(manifest.groups):
        async for index, seen in seen_in(store, group, verify="size"):
            states.update(finding.state for finding in seen.outputs.values())
            if number == 0 and not seen.whole:
                broken.add(index)
    found = OutputSummary(
        source="storage",
        expected=status.spec.expected,
        present=states["present"],
        missing=states["missing"],
        corrupt=states["corrupt"],
        unreadable=states["unreadable"],
    )
    return found, [], [] if states["unreadable"] else _by_set(manifest, broken)


def _by_set(manifest: Manifest, broken: set[int]) -> list[SetOutcome]:
    units = manifest.groups[0]
    whole, total = [0] * len(units.params), [0] * len(units.params)
    for index, (row, _) in enumerate(units.pairs):
        total[row] += 1
        whole[row] += index not in broken
    return [SetOutcome(params=params, intact=whole[row], units=total[row]) for row, params in enumerate(units.params)]
