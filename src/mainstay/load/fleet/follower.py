"""Follow a run on nodes from another machine: its wait for cores, its windows, its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ...errors import InvalidTransition, MainstayError, Overloaded, ReconnectFailed, StoreError
from ...lifecycle import table_of
from ..generator_process import LineHandler
from ..outputs import Output, RunOutputs
from ..stats.model import Header, Summary
from .run_source import LedJob, RunSource

#: how often the job is read: before the run begins, while windows arrive, and when they do not
_BEFORE_S, _LIVE_S, _SILENT_S = 1.0, 10.0, 2.0
#: the same when its leader has said that the load is over: the end of the job follows
_OVER_S = 0.2
#: without a window for this long, the summary that is saved with the job is told instead
_SILENCE_S = 4.0
#: pause before another try if the cluster does not answer, and how long it is tried
_AGAIN_S, _TRIES_S = 1.0, 60.0
#: the same for the numbers of a run that has ended
_LAST_S = 10.0


class FollowedRun(NamedTuple):
    """How it ended, or how far it was known when the watcher left."""

    job: LedJob
    summary: Summary | None
    """None: it had not begun"""

    @property
    def is_settled(self) -> bool:
        return self.job.settled_ms is not None

    def failure(self, test: str) -> MainstayError:
        """The error to raise for a run that has no numbers."""
        job = self.job
        why = job.error.message if job.error is not None else job.reason
        return MainstayError(f"load test {test} (job {job.id}) is {job.status}: {why or 'no reason was recorded'}")


class RunFollower:
    """Follows one run: `await follower.follow(...)`, which raises `ReconnectFailed` after a minute without any answer.

    `displays` get the header and the windows that arrive, as those of a run on this machine do. They never get the end:
    the caller has it. A cluster that does not answer for a while is waited for.
    """

    def __init__(
        self,
        source: RunSource,
        *,
        displays: Sequence[Output] = (),
        on_note: Callable[[str], None] = lambda _: None,
        on_wait: Callable[[str], None] = lambda _: None,
        on_line: LineHandler = lambda _, __: None,
        by: str = "client",
        now_s: Callable[[], float] | None = None,
    ) -> None:
        """`on_wait` takes what the run waits for before it begins, whenever that changes; "" when it begins. `on_note`
        takes what else the user should know meanwhile, `on_line` the lines that steps print."""
        self._source = source
        self._displays = RunOutputs(displays)
        self._note = on_note
        self._on_wait = on_wait
        self._on_line = on_line
        self._by = by
        self._now_s = now_s or (lambda: asyncio.get_running_loop().time())
        self._waits = ""
        self._begun = self._shown = self._over = False
        self._has_windows = False
        """some have arrived"""
        self._heard_s = -_SILENCE_S
        self._told = 0.0
        """the time of the plan of the last saved summary that was told"""
        self._look = asyncio.Event()
        self._cancelling = False
        """a cancel was asked for, and no manager has answered it"""
        self._answered_s = 0.0
        """when the job was read last"""
        self._away = False
        self.job: LedJob | None = None
        """as it was read last"""

    async def follow(self, *, stop: asyncio.Event, give_up: asyncio.Event) -> FollowedRun:
        """Follow it to its end. Setting `stop` cancels the job and waits for its end; setting `give_up` leaves it."""
        leaving = asyncio.ensure_future(give_up.wait())
        settled = asyncio.ensure_future(self._until_settled())
        others = [asyncio.ensure_future(self._listen()), asyncio.ensure_future(self._cancel_after(stop))]
        try:
            await asyncio.wait({settled, leaving}, return_when=asyncio.FIRST_COMPLETED)
            job = settled.result() if settled.done() else self.job or await self._source.job()
        finally:
            for task in (leaving, settled, *others):
                task.cancel()
            await asyncio.gather(leaving, settled, *others, return_exceptions=True)
        self._waiting("")
        return FollowedRun(job, await self._last_summary(job))

    async def _last_summary(self, job: LedJob) -> Summary | None:
        """The numbers of a run that is followed no more. Those of one that has ended are worth a wait."""
        until_s = self._now_s() + (0.0 if job.settled_ms is None else _LAST_S)
        while True:
            try:
                return await self._source.summary()
            except StoreError as error:
                if self._now_s() >= until_s:
                    if job.settled_ms is None:
                        return None
                    raise
                await asyncio.sleep(_pause_after(error))

    async def _until_settled(self) -> LedJob:
        self._answered_s = self._now_s()
        async with self._source.changes() as wake:
            while True:
                try:
                    self.job = job = await self._source.job()
                    if job.settled_ms is None:
                        await self._tell(job)
                except StoreError as error:
                    if not self._away:
                        self._note(f"the cluster does not answer ({error}); the run goes on, and so does this command")
                    self._away = True
                    if isinstance(error, Overloaded):
                        self._answered_s = self._now_s()  # a busy manager refuses, and is not away
                    silent_s = self._now_s() - max(self._answered_s, self._heard_s)
                    if silent_s >= _TRIES_S:
                        raise ReconnectFailed(
                            self._source.id, silent_s, why=error, cancelling=self._cancelling
                        ) from error
                    await asyncio.sleep(_pause_after(error))
                    continue
                self._answered_s = self._now_s()
                if self._away:
                    self._note("the cluster answers again")
                self._away = False
                if job.settled_ms is not None:
                    return job
                self._look.clear()
                waking, looking = (
                    asyncio.ensure_future(wake.wait(self._pause_s())),
                    asyncio.ensure_future(self._look.wait()),
                )
                try:
                    await asyncio.wait({waking, looking}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waking.cancel()
                    looking.cancel()
                    await asyncio.gather(waking, looking, return_exceptions=True)

    def _pause_s(self) -> float:
        if not self._begun:
            return _BEFORE_S
        if self._over and not self._is_silent:
            return _OVER_S
        return _SILENT_S if self._is_silent else _LIVE_S

    @property
    def _is_silent(self) -> bool:
        return self._now_s() - self._heard_s >= _SILENCE_S

    async def _tell(self, job: LedJob) -> None:
        """What the row says, if the windows do not."""
        state = table_of(job.parent).get(job.status)
        if not self._shown and not (state is not None and state.holds):
            self._waiting(job.reason or f"is {job.status}")
            return
        self._begun = True
        if not self._shown:
            self._waiting("is prepared on its nodes")
        if not self._is_silent:
            return
        summary = await self._source.summary()
        if summary is not None and summary.elapsed_s > self._told:
            self._told = summary.elapsed_s
            self._waiting("")
            numbers = f"{summary.elapsed_s:.0f} s: {summary.requests:,} requests, {summary.failed:,} failed"
            if self._has_windows:
                self._note(f"no live data arrives; saved after {numbers}")
                return
            if not self._shown:
                await self._show(summary.header)
            self._note(f"after {numbers}")

    def _waiting(self, text: str) -> None:
        if text != self._waits:
            self._waits = text
            self._on_wait(text)

    async def _listen(self) -> None:
        if not self._source.is_live:
            return
        restart = False
        async with self._source.live() as watch:
            async for update in watch:
                if update.header is not None:
                    restart = self._shown
                    self._heard_s = self._now_s()
                    if not self._shown:
                        await self._show(update.header)
                for process, line in update.lines:
                    self._on_line(process, line)
                if update.moment is not None and self._shown:
                    self._heard_s = self._now_s()
                    self._has_windows = True
                    self._displays.add(replace(update.moment, restart=restart))
                    restart = False
                self._over = update.over
                if update.over:
                    self._heard_s = self._now_s()
                    self._look.set()

    async def _show(self, header: Header) -> None:
        self._begun = True
        self._waiting("")
        await self._displays.start(header)
        self._shown = True

    async def _cancel_after(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._cancelling = True
        while True:
            try:
                self.job = await self._source.cancel(by=self._by)
            except StoreError as error:
                await asyncio.sleep(_pause_after(error))
                continue
            except InvalidTransition:
                pass  # it has just ended
            except MainstayError as error:
                self._cancelling = False
                self._note(f"the run is not cancelled, and goes on: {error}")
                return
            self._cancelling = False
            self._look.set()
            return


def _pause_after(error: StoreError) -> float:
    return max(_AGAIN_S, error.retry_after_s) if isinstance(error, Overloaded) else _AGAIN_S


__all__ = ["FollowedRun", "RunFollower"]
