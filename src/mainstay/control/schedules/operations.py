"""Operations on schedules: register, pause, resume, run now, drop, describe."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from ...errors import InvalidInput
from ...lifecycle import table_of
from ...model import Job, Schedule
from ...stores import InsertResult, Query
from ..control import Control
from ..failure import shown
from ..job_factory import JobRequest
from ..options import check_text
from .plan import COUNTED, ticks_between, upcoming
from .spec import CatchUp, Overlap, ScheduleSpec, read_spec, request_of, spec_bytes
from .when import When, next_tick, tick_time

log = logging.getLogger("mainstay.schedules")

_SHOWN_TICKS = 3


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its times and its last job."""

    name: str
    when: str = "?"
    tz: str = "UTC"
    task: str = "?"
    paused: bool = False
    catch_up: CatchUp = "once"
    overlap: Overlap = "allow"
    counted_from: datetime | None = None
    """ticks up to here are done: the last tick, or the time when it was registered, changed or resumed"""
    last_tick: datetime | None = None
    """the newest tick; None if there was none since it was registered, changed or resumed"""
    next_ticks: tuple[datetime, ...] = ()
    """empty if paused, and if its times come from an object that this program does not have"""
    last_job: str | None = None
    """the newest job of a tick or of `run_now` that is still kept"""
    last_status: str | None = None
    ticks_without_job: int = 0
    """ticks since `last_job` without a job, because that is not settled (with overlap "skip"); counted up to 1000"""
    registered: bool = True
    """False: a program declares it, and no worker has stored it yet"""
    problem: str | None = None
    """why it does not tick"""


async def register(control: Control, specs: Iterable[ScheduleSpec]) -> None:
    """Store schedules, as every worker does at its start. An unchanged schedule is left as it is.

    A new schedule, and one whose times changed, counts from now: it never makes up for earlier ticks. Otherwise the
    last tick is kept. A pause is always kept.
    """
    store = control.store
    rows = {row.name: row for row in await store.schedules()}
    seen: set[str] = set()
    for spec in specs:
        if spec.name in seen:
            raise InvalidInput("schedule", f"{spec.name!r} is declared twice; give each schedule its own name")
        seen.add(spec.name)
        data, row = spec_bytes(spec), rows.get(spec.name)
        if row is not None and row.spec == data:
            continue
        begins = None if row is not None and _same_times(row, spec) else store.clock.now_ms()
        await store.put_schedule(Schedule(name=spec.name, spec=data, last_tick_ms=begins))
        log.info("%s schedule=%s when=%s", "registered" if row is None else "changed", spec.name, spec.when.text)


async def pause(control: Control, name: str, *, actor: str = "client") -> None:
    """Stop the ticks until `resume`, also across restarts of the workers that register it."""
    await _row(control, name)
    await control.store.pause_schedule(name, paused=True)
    log.info("paused schedule=%s actor=%s", name, actor)


async def resume(control: Control, name: str, *, actor: str = "client") -> None:
    """Tick again from now on: ticks of the pause are not made up for, whatever `catch_up` says."""
    row = await _row(control, name)
    if not row.paused:
        return
    await control.store.tick(name, control.store.clock.now_ms(), [])
    await control.store.pause_schedule(name, paused=False)
    log.info("resumed schedule=%s actor=%s", name, actor)


async def run_now(
    control: Control, name: str, *, actor: str, prepare: Callable[[JobRequest], JobRequest] | None = None
) -> InsertResult:
    """Submit the job of a schedule now, in addition to its ticks, even if it is paused. With overlap "skip" the result
    may be the job that is not settled yet (`created` is False). `prepare` is that of the `Ticker`: a program's
    hooks."""
    check_text(actor, field="actor")
    spec = read_spec((await _row(control, name)).spec)
    request = request_of(spec, scheduled_for=tick_time(control.store.clock.now_ms()))
    if prepare is not None:
        request = prepare(request)
    (made,) = await control.store.insert(control.jobs.new_jobs([request], actor=actor))
    log.info("run on request schedule=%s actor=%s job_id=%s created=%s", name, actor, made.id, made.created)
    return made


async def drop(control: Control, name: str, *, actor: str = "client") -> None:
    """Delete a schedule. Its jobs stay; a program that still declares it registers it again at its next start."""
    await _row(control, name)
    await control.store.drop_schedule(name)
    log.info("dropped schedule=%s actor=%s", name, actor)


async def describe(
    control: Control,
    whens: Mapping[str, When] | None = None,
    *,
    declared: Iterable[ScheduleSpec] = (),
) -> list[ScheduleView]:
    """All schedules, by name. An unreadable one says so in `problem`.

    Schedules in `declared` that are not stored yet have `registered` False.
    """
    rows = {row.name: row for row in await control.store.schedules()}
    missing = {spec.name: Schedule(name=spec.name, spec=spec_bytes(spec)) for spec in declared if spec.name not in rows}
    views = [await _view(control, row, (whens or {}).get(name)) for name, row in sorted({**rows, **missing}.items())]
    return [msgspec.structs.replace(view, registered=view.name in rows) for view in views]


async def _view(control: Control, row: Schedule, custom: When | None) -> ScheduleView:
    counted_from = None if row.last_tick_ms is None else tick_time(row.last_tick_ms)
    bare = ScheduleView(name=row.name, paused=row.paused, counted_from=counted_from)
    try:
        spec = read_spec(row.spec)
    except InvalidInput as error:
        return msgspec.structs.replace(bare, problem=str(error))
    newest = await control.store.find(Query(tag=spec.tag), limit=1)
    job = newest.jobs[0] if newest.jobs else None
    view = msgspec.structs.replace(
        bare,
        when=spec.when.text,
        tz=spec.when.tz,
        task=spec.task,
        catch_up=spec.catch_up,
        overlap=spec.overlap,
        last_job=None if job is None else job.id,
        last_status=None if job is None else job.status,
    )
    try:
        when = spec.when.revived(custom)
        if when is None:
            return msgspec.structs.replace(view, problem="its times are known only to the program that declares it")
        return _with_times(view, when, job, tick_time(control.store.clock.now_ms()))
    except Exception as error:  # noqa: BLE001 - a user's `next` may raise anything; the other schedules are still shown
        return msgspec.structs.replace(view, problem=shown(error, 500))


def _with_times(view: ScheduleView, when: When, job: Job | None, now: datetime) -> ScheduleView:
    counted_from = view.counted_from or now
    ticked = next_tick(when, counted_from - timedelta(milliseconds=1)) == counted_from
    return msgspec.structs.replace(
        view,
        last_tick=counted_from if ticked else None,
        next_ticks=() if view.paused else tuple(upcoming(when, max(counted_from, now), _SHOWN_TICKS)),
        ticks_without_job=_held_back(view, when, job, counted_from),
    )


def _held_back(view: ScheduleView, when: When, job: Job | None, until: datetime) -> int:
    """Ticks without a job because the last one is not settled. They are not stored: they are the times since."""
    if view.overlap != "skip" or job is None:
        return 0
    state = table_of(job.parent).get(job.status)
    if state is None or state.settled:
        return 0
    since = datetime.fromisoformat(job.options.metadata["scheduled_for"])
    return len(ticks_between(when, since, until, COUNTED)[0])


def _same_times(row: Schedule, spec: ScheduleSpec) -> bool:
    try:
        return read_spec(row.spec).when.same_times(spec.when)
    except InvalidInput:
        return False


async def _row(control: Control, name: str) -> Schedule:
    rows = {row.name: row for row in await control.store.schedules()}
    if name in rows:
        return rows[name]
    close = difflib.get_close_matches(str(name), list(rows), n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(rows) or 'none'}"
    raise InvalidInput("schedule", f"there is no schedule {name!r}; {hint}")
