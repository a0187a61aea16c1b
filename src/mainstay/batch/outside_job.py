"""The outside job of a batch, as its driver deals with it: started once for each round, looked at now and then, and
stopped before the batch is cancelled. What becomes of the batch is decided by its outputs, whatever is seen here.
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
from .runners import LOCAL, Outside, Runner, Runners, shown_runner
from .spec import DriverState, OutsideRecord, Spec

#: so often it is tried to start one; the waits between are these
_START_WAITS_S = (2.0, 8.0, 30.0, 120.0)
#: a batch whose units are done waits for its outside job to end: its exit code is worth knowing. Then it is stopped
_END_WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
_STOP_WAITS_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
#: it may not be listed yet, or not for a moment: so many looks in a row say that it is gone
_GONE_AFTER = 2
#: a runner that fails for longer is told of: workers of other machines may be able to ask it
_AWAY_S = 60.0
#: what a worker that died had under way may come through after its death
_UNDER_WAY_S = 5.0
_TAIL = re.compile(r"outside job \S+ \([^()]*\)")

Save = Callable[[], Awaitable[None]]


class WaitDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver is to do about units that are open."""

    over: str = ""
    """why nobody will run them; empty: wait for them"""
    wait_s: float | None = None
    """how long; None: as usual"""
    why: str = ""


class OutsideLauncher:
    """How this program has batches run outside."""

    def __init__(self, runners: Runners, url: str, target: Callable[[], str]) -> None:
        self.runners = runners
        self._url = url
        self._target = target
        """the `module:app` of this program, once it is loaded by that name"""

    def command(self, job_id: str) -> list[str]:
        """What an outside job is to run."""
        target = self._target() or os.environ.get("MAINSTAY_APP", "")
        if not target:
            raise RunnerFailed("the app that the outside job must load is not known; set MAINSTAY_APP=module:app")
        return [sys.executable, "-m", "mainstay", "batch", "exec", job_id, "--app", target]

    @property
    def env(self) -> dict[str, str]:
        """What it finds in its environment: a URL may hold a password, and everybody sees the words of a command."""
        return {"MAINSTAY_STORE": self._url}


def queue_of(job_id: str, runner: str) -> str | None:
    """The queue of the units: one of the batch's own, if it runs outside. No ordinary worker serves it."""
    return None if runner == LOCAL else f"batch.{job_id}"


def name_of(job: Job, group: int) -> str:
    """What its outside job is called: the same for whoever starts it again after a crash, another after a resume."""
    return f"mainstay-{job.id}-{job.token}" + (f"-{group}" if group else "")


def worker_name(job_id: str) -> str:
    """How the names of workers begin that run the units of a batch, and nothing else."""
    return f"exec-{job_id[-12:]}-"


def kept(reason: str, before: str | None) -> str:
    """A reason that goes on to name the outside job, so that its handle can be searched for.

    >>> kept("its units are done", "outside job mainstay-1 (node7:4711) is running")
    'its units are done; outside job mainstay-1 (node7:4711)'
    """
    found = _TAIL.search(before or "")
    return reason if found is None or found[0] in reason else f"{reason}; {found[0]}"


async def tell(control: Control, job: Job, text: str, *, actor: str) -> None:
    """A note on the batch, and its reason from now on. What was said is not said twice; a batch that is over is left
    as it is."""

    def decide(row: Job, _: int) -> tuple[Move, ...]:
        state = table_of(None).get(row.status)
        if state is None or not state.holds or row.token != job.token or row.reason == text:
            return ()
        # who asked for the end, and why, stays to be read
        reason = kept(row.reason or "", text) if row.status == "cancelling" else text
        return (Move(to=row.status, reason=text, fields={"reason": reason}, flag="note"),)

    await control.drivers.act(job.id, decide, actor=actor)


class OutsideJob:
    """The outside job of one batch, in the hands of its driver. Does nothing for a batch that runs on workers."""

    def __init__(self, outsides: OutsideLauncher, control: Control, spec: Spec, parent: Job, *, actor: str) -> None:
        self._outsides = outsides
        self._control = control
        self._clock = control.store.clock
        self._spec = spec
        self._parent = parent
        self._actor = actor
        self.queue = queue_of(parent.id, spec.runner)

    # while units are open ---------------------------------------------------------------------------

    async def tend(self, state: DriverState, save: Save) -> WaitDecision:
        """See to it that there is an outside job for the group at work; and look at it, if it is time."""
        if self.queue is None:
            return WaitDecision()
        begun = state.outside
        if begun is None or (begun.over and begun.group < state.group):
            # what is about to be started is written down before: whoever comes next looks for it
            name, now_ms = name_of(self._parent, state.group), self._clock.now_ms()
            begun = state.outside = OutsideRecord(name=name, group=state.group, looked_ms=now_ms)
            await save()
        elif not begun.handle and not begun.tries and (wait_s := self._until_settled(begun)) > 0:
            return WaitDecision(
                wait_s=wait_s, why="another was about to start the outside job; it is seen first whether it did"
            )
        if begun.state == "refused":
            return WaitDecision(over=f"the outside job could not be started: {begun.trouble}")
        if not begun.handle:
            return await self._start(begun, save)
        if begun.state != "exited":
            await self._look(begun, save)
        if begun.state == "exited":
            how = _seen(begun).told
            if await self._is_served():
                return WaitDecision(why=f"{begun} {how}, and another `batch exec` is at work")
            return WaitDecision(over=f"{begun} {how} before it was done")
        return WaitDecision(why=f"{begun} is gone" if begun.state == "gone" else begun.trouble)

    async def _is_served(self) -> bool:
        """Whether somebody is at work on the units. One that was killed counts until that is known."""
        name, lease_ms = worker_name(self._parent.id), self._clock.lease_ms()
        sessions = await self._control.store.sessions()
        return any(session.worker.startswith(name) and is_alive(session, lease_ms) for session in sessions)

    def _until_settled(self, begun: OutsideRecord) -> float:
        return _UNDER_WAY_S - (self._clock.now_ms() - begun.looked_ms) / 1000

    async def _start(self, begun: OutsideRecord, save: Save) -> WaitDecision:
        try:
            handle = await self._runner().start(begun.name, self._outsides.command(self._parent.id), self._outsides.env)
        except RunnerFailed as error:
            begun.trouble = str(error)[:500]
            begun.tries += 1
            last = begun.tries > len(_START_WAITS_S)
            if last:
                begun.state = "refused"
            await save()
            await self._tell(f"{begun} could not be started ({begun.tries}): {begun.trouble}")
            why = f"the outside job could not be started: {begun.trouble}"
            return WaitDecision(over=why) if last else WaitDecision(wait_s=_START_WAITS_S[begun.tries - 1], why=why)
        begun.handle, begun.state, begun.trouble, begun.tries = handle, "waiting", "", 0
        begun.looked_ms = self._clock.now_ms()
        await save()
        await self._tell(f"{begun} was started by {shown_runner(self._spec.runner)}")
        return WaitDecision()

    async def _look(self, begun: OutsideRecord, save: Save, *, now: bool = False) -> bool:
        """Ask its runner, unless that was done a moment ago; tell what is new. Whether it is over."""
        before = (begun.state, begun.exit_code, begun.trouble)
        at_ms = self._clock.now_ms()
        try:
            runner = self._runner()
            if not now and at_ms - begun.looked_ms < runner.every_s * 1000:
                return begun.over
            seen = await runner.look(begun.handle, begun.name)
        except RunnerFailed as error:
            begun.away_ms = begun.away_ms or at_ms
            text = f"{begun} cannot be looked at: {error}"[:500]
            if at_ms - begun.away_ms >= _AWAY_S * 1000:
                begun.trouble = text
        else:
            begun.trouble, begun.away_ms, text = "", 0, told(begun, seen, self._parent.id)
            begun.unseen = begun.unseen + 1 if seen.state == "gone" else 0
            if seen.state != "gone" or begun.unseen >= _GONE_AFTER or now:
                begun.state, begun.exit_code = seen.state, seen.exit_code
        begun.looked_ms = at_ms
        await save()
        if (begun.state, begun.exit_code, begun.trouble) != before:
            await self._tell(text)
        return begun.over

    # at the end -------------------------------------------------------------------------------------

    async def wind_up(self, state: DriverState, save: Save) -> float | None:
        """The units are done: how long to wait until it is seen how the outside job ended; None: no longer. One that
        does not end, or has not begun, is stopped."""
        begun = state.outside
        if begun is None or begun.over:
            return None
        if await self._look(begun, save, now=True):
            return None
        begun.tries += 1
        await save()
        if begun.state != "waiting" and begun.tries <= len(_END_WAITS_S):
            return _END_WAITS_S[begun.tries - 1]
        try:
            await self._runner().stop(begun.handle, begun.name)
        except RunnerFailed as error:
            await self._tell(f"{begun} is not needed any more and cannot be stopped: {error}"[:1000])
        else:
            await self._tell(f"{begun} is not needed any more and was stopped")
        begun.state = "stopped"
        await save()
        return None

    async def stop(self, state: DriverState, save: Save) -> float | None:
        """Stop it: how long to wait until it is looked at again; None: it is over."""
        begun = state.outside
        if begun is None or begun.over:
            return None
        await self._hold_on()
        try:
            await self._runner().stop(begun.handle, begun.name)
        except RunnerFailed as error:
            trouble, begun.trouble = begun.trouble, f"{begun} cannot be stopped: {error}"[:500]
            if begun.trouble != trouble:
                await self._tell(begun.trouble)
        else:
            if await self._look(begun, save, now=True):
                return None
        begun.tries += 1
        await save()
        return _STOP_WAITS_S[min(begun.tries, len(_STOP_WAITS_S)) - 1]

    async def _hold_on(self) -> None:
        """A batch that is cancelled has a grace to end; here it is not cancelled before the outside job is stopped."""

        def decide(row: Job, _: int) -> tuple[Move, ...]:
            if row.status != "cancelling" or row.expires_ms is None or row.token != self._parent.token:
                return ()
            why = "it is cancelled when its outside job has been stopped"
            return (Move(to=row.status, reason=why, fields={"expires_ms": None}, flag="note"),)

        await self._control.drivers.act(self._parent.id, decide, actor=self._actor)

    def _runner(self) -> Runner:
        try:
            return self._outsides.runners.get(self._spec.runner)
        except InvalidInput as error:
            raise RunnerFailed(f"this worker has no such runner: {error}") from None

    async def _tell(self, text: str) -> None:
        await tell(self._control, self._parent, text, actor=self._actor)


def told(begun: OutsideRecord, seen: Outside, job_id: str) -> str:
    """How it stands, in words, and what to do about one that vanished."""
    text = f"{begun} {seen.told}"
    if seen.state == "gone":
        return f"{text}; to go on, run `mainstay batch exec {job_id}` somewhere, or cancel it"
    return text


def _seen(begun: OutsideRecord) -> Outside:
    return Outside(state="exited", exit_code=begun.exit_code)
