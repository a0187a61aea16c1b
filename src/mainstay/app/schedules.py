"""The schedules an app declares: kept until a worker stores them, then ticked from the store.

Nothing is written when a program is imported or opened. Each worker stores what its program declares when it starts,
because the one that leads may be another program's; what is stored already costs it one read. The leader ticks all that
are stored.
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
from ..model import Leadership, Schedule
from ..task import Client, Draft
from ..task.drafts import drafted
from .kind_parts import KindParts

log = logging.getLogger("mainstay.schedules")


class Schedules:
    """What `@app.schedule` declared."""

    def __init__(self, client: Client, parts: KindParts) -> None:
        self._client = client
        self._parts = parts
        self._specs: dict[str, ScheduleSpec] = {}
        """with the payload as it is before it is sealed"""
        self._whens: dict[str, When] = {}
        self._stored_on: Control | None = None
        """where a worker has stored them: it does so once, or a deployment's old workers would undo what its new ones
        have changed whenever one of them begins to lead"""

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
                "schedule", f"{name!r} is declared already; give this one a name: app.schedule(..., name=...)"
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
        """Store what is declared; what is stored already is left as it is."""
        rows = {row.name: row for row in await control.store.schedules()}
        await register(control, [self._sealed(spec, rows.get(spec.name)) for spec in self._specs.values()])
        for row in rows.values():
            self._tell_if_left(row)

    async def prepare(self, control: Control) -> None:
        """Store what is declared, at a worker's start. What is damaged in the store keeps no worker from its jobs."""
        if self._stored_on is control:
            return
        try:
            await self.store(control)
        except (RowDamaged, InvalidInput) as error:
            log.error("cannot store the schedules of this program: %s; its jobs run, and a leader tries again", error)
        else:
            self._stored_on = control

    async def describe(self, control: Control) -> list[ScheduleView]:
        """What is stored, with the times that only this program knows, and what is declared and not stored yet."""
        return await describe(control, self._whens, declared=self._specs.values())

    async def run_now(self, control: Control, name: str, *, actor: str) -> InsertResult:
        """Submit the job of a stored schedule, with the hooks asked as for a tick."""
        if name in self._specs and name not in {row.name for row in await control.store.schedules()}:
            rule = f"{name!r} is declared but not registered yet; a worker registers it when it starts"
            raise InvalidInput("schedule", f"{rule}, and so does app.sync_schedules()")
        return await run_now(control, name, actor=actor, prepare=self._prepared)

    def duty(self, control: Control) -> Duty:
        """The leader's: tick what is stored; first of all store what is not."""
        ticker = Ticker(control, self._whens, prepare=self._prepared)

        async def run(lead: Leadership) -> float:
            await self.prepare(control)
            return await ticker.run(lead)

        return Duty(ticker.duty().name, ticker.duty().every_s, run)

    def _sealed(self, spec: ScheduleSpec, row: Schedule | None) -> ScheduleSpec:
        """As it is stored. What was sealed before stays as it is: sealing it again would change its bytes."""
        sealer = self._client.sealer
        if not sealer.seals:
            return spec
        try:
            before = None if row is None else read_spec(row.spec).payload
            if before is not None and sealer.open(before, field="payload") == spec.payload:
                return msgspec.structs.replace(spec, payload=before)
        except InvalidInput:
            pass  # unreadable, or sealed by another codec: it is stored anew
        return msgspec.structs.replace(spec, payload=sealer.seal(spec.payload))

    def _prepared(self, request: JobRequest) -> JobRequest:
        """The job of a tick, with the hooks asked; of what this program declares."""
        hooks, part = self._client.before_submit, self._parts.declaring(request.name)
        if not hooks or part is None or not isinstance(request.options, Mapping):
            return request
        try:
            arguments = part.arguments(request.name, bytes(request.payload))
        except InvalidInput:
            arguments = {}  # the task has changed since: its worker will say so, and keep the job
        draft = Draft(name=request.name, arguments=arguments, options=dict(request.options))
        return msgspec.structs.replace(request, options=drafted(hooks, draft).options)

    def _tell_if_left(self, row: Schedule) -> None:
        """A schedule that was taken out of the program goes on ticking: it may be somebody else's by now."""
        if row.name in self._specs or row.paused:
            return
        try:
            spec = read_spec(row.spec)
        except InvalidInput:
            return
        if self._parts.declaring(spec.task) is not None:
            log.warning(
                "a stored schedule is not declared by this program any more schedule=%s task=%s; it goes on. If it is "
                "not wanted, pause or drop it",
                row.name,
                spec.task,
            )
