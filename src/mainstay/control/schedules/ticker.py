"""The ticker: the leader's duty that turns due ticks into jobs.

Everything it needs is in the store (except for custom `When` objects), so any leader continues where the last one
stopped. A tick and its job are one write, unique by schedule and time: two sessions that both believe they lead submit
one job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from ...errors import InvalidInput, NotLeader, RowDamaged, StoreError
from ...model import Leadership, Schedule
from ...stores import InsertResult
from ..control import Control
from ..duties import Duty
from ..failure import shown
from ..job_factory import JobRequest
from .plan import TickPlan, due_ticks
from .spec import ScheduleSpec, read_spec, request_of
from .when import When, tick_ms, tick_time

log = logging.getLogger("mainstay.schedules")

#: how often schedules are read from the store
_EVERY_S = 1.0
#: a last tick this far ahead means that the clock was set back
_AHEAD_MS = 60_000


class _Known(msgspec.Struct):
    """A schedule as it was last read, and what follows from that."""

    row: Schedule
    spec: ScheduleSpec | None = None
    when: When | None = None
    next_ms: int | None = 0
    """the time of the next tick; None: never again; 0: unknown"""
    logged: str = ""
    """the last error, which is not logged again"""


class Ticker:
    """Ticks the schedules of a store. `whens` are the objects of schedules with a custom `When`.

    `grace_s` is how old a tick may be and still count as current: by default two leader leases, so that no tick is
    missed when the leader dies. `prepare` changes each request before it becomes a job: a program's hooks.
    """

    def __init__(
        self,
        control: Control,
        whens: Mapping[str, When] | None = None,
        *,
        grace_s: float | None = None,
        prepare: Callable[[JobRequest], JobRequest] | None = None,
    ) -> None:
        self._control = control
        self._store = control.store
        self._whens = dict(whens or {})
        self._prepare = prepare
        self._grace = timedelta(seconds=2 * control.settings.lease_s if grace_s is None else grace_s)
        self._known: dict[str, _Known] = {}
        self._blockers: dict[str, str] = {}
        """schedule -> the unsettled job that kept its last tick from submitting one"""

    def duty(self) -> Duty:
        """For `control.duties(session, extra=[ticker.duty()])`."""
        return Duty("schedules", _EVERY_S, self.run)

    async def run(self, lead: Leadership) -> float:
        """Submit the jobs of due ticks; returns the seconds until the next run.

        An error of one schedule is logged once and does not delay the others. `NotLeader` and errors of the store are
        raised.
        """
        rows = [row for row in await self._store.schedules() if not row.paused]
        self._known = {row.name: self._updated(row) for row in rows}
        for known in self._known.values():
            if known.next_ms is None or known.next_ms > self._store.clock.now_ms():
                continue
            try:
                await self._tick(known, lead)
            except RowDamaged as error:
                self._log_error(known, error)
            except (NotLeader, StoreError):
                raise
            except Exception as error:  # noqa: BLE001 - a user's `next` may raise anything; the others continue
                self._log_error(known, error)
        soonest = min((known.next_ms for known in self._known.values() if known.next_ms), default=None)
        if soonest is None:
            return _EVERY_S
        return min(_EVERY_S, max(0.0, (soonest - self._store.clock.now_ms()) / 1000))

    def _updated(self, row: Schedule) -> _Known:
        """What is known of a schedule, reset if its row changed."""
        known = self._known.get(row.name)
        if known is None or known.row.spec != row.spec:
            return _Known(row)
        if known.row.last_tick_ms != row.last_tick_ms:
            known.row, known.next_ms = row, 0
        return known

    async def _tick(self, known: _Known, lead: Leadership) -> None:
        spec, when = self._read(known)
        last_ms, now_ms = known.row.last_tick_ms, self._store.clock.now_ms()
        if last_ms is None:
            # it has no last tick yet: begin now
            await self._store.tick(spec.name, now_ms, [], lead=lead)
            last_ms = self._ticked(known, now_ms)
        if last_ms > now_ms + _AHEAD_MS:
            rule = f"{tick_time(last_ms).isoformat()} is in the future: was the clock set back?"
            raise InvalidInput("last tick", f"{rule} To start again, drop the schedule and register it")
        plan = due_ticks(spec, when, tick_time(last_ms), tick_time(now_ms), grace=self._grace)
        await self._make(known, spec, plan, lead)
        known.next_ms = None if plan.next is None else tick_ms(plan.next)
        known.logged = ""

    def _read(self, known: _Known) -> tuple[ScheduleSpec, When]:
        spec, when = known.spec, known.when
        if spec is None or when is None:
            spec = known.spec = read_spec(known.row.spec)
            when = known.when = spec.when.revived(self._whens.get(known.row.name))
        if when is None:
            rule = "its times come from an object that this program does not have"
            raise InvalidInput("when", f"{rule}; run workers of the program that declares it, or drop it")
        return spec, when

    async def _make(self, known: _Known, spec: ScheduleSpec, plan: TickPlan, lead: Leadership) -> None:
        if plan.skipped:
            log.warning("ticks skipped schedule=%s count=%s catch_up=%s", spec.name, plan.skipped_text, spec.catch_up)
        if plan.passed is not None:
            await self._store.tick(spec.name, tick_ms(plan.passed), [], lead=lead)
            self._ticked(known, tick_ms(plan.passed))
        for at in plan.ticks:
            request = request_of(spec, scheduled_for=at)
            if self._prepare is not None:
                request = self._prepare(request)
            jobs = self._control.jobs.new_jobs([request], actor=spec.tag)
            results = await self._store.tick(spec.name, tick_ms(at), jobs, lead=lead)
            self._ticked(known, tick_ms(at))
            self._log_tick(spec, at, results)

    def _ticked(self, known: _Known, at_ms: int) -> int:
        known.row = msgspec.structs.replace(known.row, last_tick_ms=at_ms)
        return at_ms

    def _log_tick(self, spec: ScheduleSpec, at: datetime, results: list[InsertResult] | None) -> None:
        if not results:
            log.info("already ticked schedule=%s at=%s", spec.name, at.isoformat())
            return
        (job,) = results
        if job.created:
            self._blockers.pop(spec.name, None)
            log.info("ticked schedule=%s at=%s job_id=%s", spec.name, at.isoformat(), job.id)
            return
        # a warning once for each blocking job, not at every tick
        level = logging.DEBUG if self._blockers.get(spec.name) == job.id else logging.WARNING
        self._blockers[spec.name] = job.id
        log.log(
            level,
            "tick without a job, an earlier one is not settled yet schedule=%s at=%s job_id=%s",
            spec.name,
            at.isoformat(),
            job.id,
        )

    def _log_error(self, known: _Known, error: Exception) -> None:
        text = shown(error, 500)
        if text != known.logged:
            log.error("cannot tick schedule=%s: %s; the others continue", known.row.name, text)
        known.logged, known.next_ms = text, 0
