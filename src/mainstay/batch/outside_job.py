"""The outside job of a batch. Its driver starts one for each round, checks it now and then, and stops it before the
batch is cancelled. The outputs decide the result of the batch, not the outside job.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Awaitable, Callable

import msgspec

from ..control import Control
from ..control.explain import is_alive
from ..errors import InvalidInput, RunnerFailed
from ..lifecycle import Move, table_of
from ..model import Job
from .runners import LOCAL, OutsideStatus, Runner, Runners, shown_runner
from .spec import DriverState, OutsideRecord, Spec

#: waits between the attempts to start one
_START_WAITS_S = (2.0, 8.0, 30.0, 120.0)
#: when the units are done, the batch waits for the exit code of its outside job, and stops it after these waits
_END_WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
_STOP_WAITS_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
#: consecutive checks that do not find it: it may not be listed yet
_GONE_AFTER = 2
#: failures of a runner are reported after this time: workers of other machines may reach it
_AWAY_S = 60.0
#: a request of a worker that died may still arrive for this time
_UNDER_WAY_S = 5.0
_MENTION = re.compile(r"outside job \S+ \([^()]*\)")

Save = Callable[[], Awaitable[None]]


class WaitDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver does about open units."""

    over: str = ""
    """why they will not run; empty: wait for them"""
    wait_s: float | None = None
    """time to wait; None: the usual time"""
    why: str = ""


class OutsideLauncher:
    """Starts outside jobs for the batches of this program."""

    def __init__(self, runners: Runners, url: str, target: Callable[[], str]) -> None:
        self.runners = runners
        self._url = url
        self._target = target
        """returns the `module:app` of this program, if it was loaded by that name"""

    def command(self, job_id: str) -> list[str]:
        """The command line of an outside job."""
        target = self._target() or os.environ.get("MAINSTAY_APP", "")
        if not target:
            raise RunnerFailed("the app that the outside job must load is not known; set MAINSTAY_APP=module:app")
        return [sys.executable, "-m", "mainstay", "batch", "exec", job_id, "--app", target]

    @property
    def env(self) -> dict[str, str]:
        """Its environment. The URL is not in the command line, which other users can see."""
        return {"MAINSTAY_STORE": self._url}


def queue_of(job_id: str, runner: str) -> str | None:
    """The queue of the units of an outside batch, which no ordinary worker serves; None for other batches."""
    return None if runner == LOCAL else f"batch.{job_id}"


def name_of(job: Job, group: int) -> str:
    """The name of its outside job: the same after a crash of the driver, another after a resume."""
    return f"mainstay-{job.id}-{job.token}" + (f"-{group}" if group else "")


def worker_name(job_id: str) -> str:
    """The prefix of the names of workers that run the units of one batch."""
    return f"exec-{job_id[-12:]}-"


def with_outside_job(reason: str, before: str | None) -> str:
    """A reason that still names the outside job, so that its handle can be found.

    >>> with_outside_job("its units are done", "outside job mainstay-1 (node7:4711) is running")
    'its units are done; outside job mainstay-1 (node7:4711)'
    """
    mention = _MENTION.search(before or "")
    return reason if mention is None or mention[0] in reason else f"{reason}; {mention[0]}"


async def note_on_batch(control: Control, job: Job, text: str, *, actor: str) -> None:
    """Add a note to the batch, which becomes its reason. Does nothing if it is the reason already, or if the batch has
    ended."""

    def decide(row: Job, _: int) -> tuple[Move, ...]:
        state = table_of(None).get(row.status)
        if state is None or not state.holds or row.token != job.token or row.reason == text:
            return ()
        # the reason of the cancellation stays
        reason = with_outside_job(row.reason or "", text) if row.status == "cancelling" else text
        return (Move(to=row.status, reason=text, fields={"reason": reason}, flag="note"),)

    await control.drivers.act(job.id, decide, actor=actor)


class OutsideJob:
    """The outside job of one batch, for its driver. Does nothing for a batch that runs on workers."""

    def __init__(self, launcher: OutsideLauncher, control: Control, spec: Spec, parent: Job, *, actor: str) -> None:
        self._launcher = launcher
        self._control = control
        self._clock = control.store.clock
        self._spec = spec
        self._parent = parent
        self._actor = actor
        self.queue = queue_of(parent.id, spec.runner)

    # while units are open ---------------------------------------------------------------------------

    async def check(self, state: DriverState, save: Save) -> WaitDecision:
        """Start an outside job for the current group if needed; otherwise check it, if it is time."""
        if self.queue is None:
            return WaitDecision()
        record = state.outside
        if record is None or (record.over and record.group < state.group):
            # recorded before it is started, so that the next driver looks for it
            name, now_ms = name_of(self._parent, state.group), self._clock.now_ms()
            record = state.outside = OutsideRecord(name=name, group=state.group, looked_ms=now_ms)
            await save()
        elif not record.handle and not record.tries and (wait_s := self._until_settled(record)) > 0:
            return WaitDecision(wait_s=wait_s, why="another worker may have started the outside job; waiting to see it")
        if record.state == "refused":
            return WaitDecision(over=f"the outside job could not be started: {record.trouble}")
        if not record.handle:
            return await self._start(record, save)
        if record.state != "exited":
            await self._look(record, save)
        if record.state == "exited":
            ending = OutsideStatus(state="exited", exit_code=record.exit_code).text
            if await self._is_served():
                return WaitDecision(why=f"{record} {ending}, and another `batch exec` is running")
            return WaitDecision(over=f"{record} {ending} before its units were done")
        return WaitDecision(why=f"{record} is gone" if record.state == "gone" else record.trouble)

    async def _is_served(self) -> bool:
        """Whether a worker serves the units. A killed one counts until its death is known."""
        name, lease_ms = worker_name(self._parent.id), self._clock.lease_ms()
        sessions = await self._control.store.sessions()
        return any(session.worker.startswith(name) and is_alive(session, lease_ms) for session in sessions)

    def _until_settled(self, record: OutsideRecord) -> float:
        return _UNDER_WAY_S - (self._clock.now_ms() - record.looked_ms) / 1000

    async def _start(self, record: OutsideRecord, save: Save) -> WaitDecision:
        try:
            handle = await self._runner().start(
                record.name, self._launcher.command(self._parent.id), self._launcher.env
            )
        except RunnerFailed as error:
            record.trouble = str(error)[:500]
            record.tries += 1
            last = record.tries > len(_START_WAITS_S)
            if last:
                record.state = "refused"
            await save()
            await self._note(f"{record} could not be started ({record.tries}): {record.trouble}")
            why = f"the outside job could not be started: {record.trouble}"
            return WaitDecision(over=why) if last else WaitDecision(wait_s=_START_WAITS_S[record.tries - 1], why=why)
        record.handle, record.state, record.trouble, record.tries = handle, "waiting", "", 0
        record.looked_ms = self._clock.now_ms()
        await save()
        await self._note(f"{record} was started by {shown_runner(self._spec.runner)}")
        return WaitDecision()

    async def _look(self, record: OutsideRecord, save: Save, *, now: bool = False) -> bool:
        """Ask its runner, unless it was asked a moment ago, and report changes. Returns whether it is over."""
        before = (record.state, record.exit_code, record.trouble)
        at_ms = self._clock.now_ms()
        try:
            runner = self._runner()
            if not now and at_ms - record.looked_ms < runner.every_s * 1000:
                return record.over
            outside = await runner.look(record.handle, record.name)
        except RunnerFailed as error:
            record.away_ms = record.away_ms or at_ms
            text = f"{record} cannot be checked: {error}"[:500]
            if at_ms - record.away_ms >= _AWAY_S * 1000:
                record.trouble = text
        else:
            record.trouble, record.away_ms, text = "", 0, outside_text(record, outside, self._parent.id)
            record.unseen = record.unseen + 1 if outside.state == "gone" else 0
            if outside.state != "gone" or record.unseen >= _GONE_AFTER or now:
                record.state, record.exit_code = outside.state, outside.exit_code
        record.looked_ms = at_ms
        await save()
        if (record.state, record.exit_code, record.trouble) != before:
            await self._note(text)
        return record.over

    # at the end -------------------------------------------------------------------------------------

    async def wind_up(self, state: DriverState, save: Save) -> float | None:
        """After the units: the time to wait for the end of the outside job; None: do not wait. A job that does not end,
        or has not begun, is stopped."""
        record = state.outside
        if record is None or record.over:
            return None
        if await self._look(record, save, now=True):
            return None
        record.tries += 1
        await save()
        if record.state != "waiting" and record.tries <= len(_END_WAITS_S):
            return _END_WAITS_S[record.tries - 1]
        try:
            await self._runner().stop(record.handle, record.name)
        except RunnerFailed as error:
            await self._note(f"{record} is no longer needed and cannot be stopped: {error}"[:1000])
        else:
            await self._note(f"{record} is no longer needed and was stopped")
        record.state = "stopped"
        await save()
        return None

    async def stop(self, state: DriverState, save: Save) -> float | None:
        """Stop it. Returns the time to wait until the next check; None: it is over."""
        record = state.outside
        if record is None or record.over:
            return None
        await self._suspend_grace()
        try:
            await self._runner().stop(record.handle, record.name)
        except RunnerFailed as error:
            trouble, record.trouble = record.trouble, f"{record} cannot be stopped: {error}"[:500]
            if record.trouble != trouble:
                await self._note(record.trouble)
        else:
            if await self._look(record, save, now=True):
                return None
        record.tries += 1
        await save()
        return _STOP_WAITS_S[min(record.tries, len(_STOP_WAITS_S)) - 1]

    async def _suspend_grace(self) -> None:
        """Suspend the grace period of a cancelled batch until its outside job has stopped."""

        def decide(row: Job, _: int) -> tuple[Move, ...]:
            if row.status != "cancelling" or row.expires_ms is None or row.token != self._parent.token:
                return ()
            why = "it is cancelled after its outside job has stopped"
            return (Move(to=row.status, reason=why, fields={"expires_ms": None}, flag="note"),)

        await self._control.drivers.act(self._parent.id, decide, actor=self._actor)

    def _runner(self) -> Runner:
        try:
            return self._launcher.runners.get(self._spec.runner)
        except InvalidInput as error:
            raise RunnerFailed(f"this worker has no such runner: {error}") from None

    async def _note(self, text: str) -> None:
        await note_on_batch(self._control, self._parent, text, actor=self._actor)


def outside_text(record: OutsideRecord, outside: OutsideStatus, job_id: str) -> str:
    """Its state in words, and what to do if it is gone."""
    text = f"{record} {outside.text}"
    if outside.state == "gone":
        return f"{text}; to continue, run `mainstay batch exec {job_id}` somewhere, or cancel it"
    return text
