"""The schedules that an app declares.

Nothing is written when a program is imported or opened. Each worker stores the schedules of its program when it starts,
because the leader may run another program; unchanged ones cost one read. The leader ticks all stored schedules.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from zoneinfo import ZoneInfo

import msgspec

from ..control import Control, Duty, InsertResult, JobRequest
from ..control.schedules import (
    CatchUp,
    Overlap,
    ScheduledJob,
    ScheduleSpec,
    ScheduleView,
    Ticker,
    When,
    describe,
    read_spec,
    register,
    run_now,
    schedule,
    when_of,
)
from ..errors import InvalidInput, RowDamaged
from ..kinds import DEFAULT as DEFAULT_KIND
from ..model import Leadership, Schedule
from ..stores import is_managed
from ..task import AppClient, Draft, drafted
from .kind_parts import KindParts

log = logging.getLogger("mainstay.schedules")


class Schedules:
    """The schedules of `@app.schedule`."""

    def __init__(self, client: AppClient, parts: KindParts) -> None:
        self._client = client
        self._parts = parts
        self._specs: dict[str, ScheduleSpec] = {}
        """with unsealed payloads"""
        self._whens: dict[str, When] = {}
        self._stored_on: Control | None = None
        """where a worker has stored them: only once, or old workers of a deployment would undo the changes of new ones
        whenever they begin to lead"""

    @property
    def specs(self) -> Mapping[str, ScheduleSpec]:
        return self._specs

    @property
    def queues(self) -> set[str]:
        """The queues they name themselves."""
        return {spec.options["queue"] for spec in self._specs.values() if "queue" in spec.options}

    def declare(
        self,
        job: ScheduledJob,
        when: str | timedelta | When,
        *,
        name: str | None,
        tz: str | ZoneInfo | None,
        catch_up: CatchUp,
        catch_up_limit: int,
        overlap: Overlap,
    ) -> None:
        name = name or job.name
        if name in self._specs:
            raise InvalidInput(
                "schedule", f"{name!r} is already declared; give this one another name: app.schedule(..., name=...)"
            )
        at = when_of(when, tz=tz)
        self._specs[name] = schedule(
            name,
            at,
            job.name,
            msgspec.Raw(job.payload),
            options=job.options,
            catch_up=catch_up,
            catch_up_limit=catch_up_limit,
            overlap=overlap,
            settings=self._client.settings,
        )
        self._whens[name] = at

    async def store(self, control: Control) -> None:
        """Store the declared schedules; unchanged ones are left as they are."""
        rows = {row.name: row for row in await control.store.schedules()}
        await register(control, [self._sealed(spec, rows.get(spec.name)) for spec in self._specs.values()])
        for row in rows.values():
            self._warn_if_undeclared(row)

    async def prepare(self, control: Control) -> None:
        """Store the declared schedules at the start of a worker. Damaged rows do not keep it from its jobs."""
        if self._stored_on is control:
            return
        if is_managed(control.store):
            if self._specs:
                log.info("a node stores no schedules n=%d; an operator does: app.sync_schedules()", len(self._specs))
            self._stored_on = control
            return
        try:
            await self.store(control)
        except (RowDamaged, InvalidInput) as error:
            log.error("cannot store the schedules of this program: %s; jobs still run, and the leader retries", error)
        else:
            self._stored_on = control

    async def describe(self, control: Control) -> list[ScheduleView]:
        """The stored schedules, with the times that only this program knows, and declared ones that are not stored."""
        return await describe(control, self._whens, declared=self._specs.values())

    async def run_now(self, control: Control, name: str, *, actor: str) -> InsertResult:
        """Submit the job of a stored schedule, after the hooks, as for a tick."""
        if name in self._specs and name not in {row.name for row in await control.store.schedules()}:
            rule = f"{name!r} is declared but not registered yet; a worker registers it when it starts"
            raise InvalidInput("schedule", f"{rule}, and so does app.sync_schedules()")
        return await run_now(control, name, actor=actor, prepare=self._prepared)

    def duty(self, control: Control) -> Duty:
        """The duty of the leader: store the declared schedules, and tick all stored ones."""
        ticker = Ticker(control, self._whens, prepare=self._prepared)

        async def run(lead: Leadership) -> float:
            await self.prepare(control)
            return await ticker.run(lead)

        return Duty(ticker.duty().name, ticker.duty().every_s, run)

    def _sealed(self, spec: ScheduleSpec, row: Schedule | None) -> ScheduleSpec:
        """The spec as it is stored. An unchanged payload keeps its sealed bytes, because sealing changes them."""
        sealer = self._client.sealer
        if not sealer.seals:
            return spec
        part = self._parts[spec.options.get("kind", DEFAULT_KIND)]
        try:
            before = None if row is None else read_spec(row.spec).payload
            if before is not None and part.opened_payload(before, sealer) == spec.payload:
                return msgspec.structs.replace(spec, payload=before)
        except InvalidInput:
            pass  # unreadable, or sealed by another codec: it is stored again
        return msgspec.structs.replace(spec, payload=part.sealed_payload(spec.payload, sealer))

    def _prepared(self, request: JobRequest) -> JobRequest:
        """The job of a tick after the hooks, if this program declares its task."""
        hooks, part = self._client.before_submit, self._parts.declaring(request.name)
        if not hooks or part is None or not isinstance(request.options, Mapping):
            return request
        try:
            arguments = part.arguments(request.name, bytes(request.payload))
        except InvalidInput:
            arguments = {}  # the task has changed since; its worker will report that
        draft = Draft(name=request.name, arguments=arguments, options=dict(request.options))
        return msgspec.structs.replace(request, options=drafted(hooks, draft).options)

    def _warn_if_undeclared(self, row: Schedule) -> None:
        """A schedule that was removed from the program still ticks: another program may have declared it."""
        if row.name in self._specs or row.paused:
            return
        try:
            spec = read_spec(row.spec)
        except InvalidInput:
            return
        if self._parts.declaring(spec.task) is not None:
            log.warning(
                "a stored schedule is no longer declared by this program schedule=%s task=%s; it still ticks. If it is "
                "not wanted, pause or drop it",
                row.name,
                spec.task,
            )
