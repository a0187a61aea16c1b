"""One slice of a run as its leader sees it, from assignment to assignment: each is prepared, kept in contact, and ended
before the next one may begin."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from ...errors import InvalidInput, MainstayError
from ..generator_process import GeneratorLost
from .fleet_context import FleetContext
from .messages import CommandAccepted, PrepareSlice, ReleaseSlice
from .settings import FleetMember
from .slice_link import SliceLink

#: round trips before the first start
ROUND_TRIPS = 5


class LedSlice:
    """A slice, and the link to the machine that has it now. `keep` runs for as long as the run."""

    def __init__(self, fleet: FleetContext, number: int, processes: int, *, first: int, of: int) -> None:
        """Its processes are numbered from `first`, of all `of` in the run."""
        self.number = number
        self.processes = processes
        self.link: SliceLink | None = None
        """to its last assignment; None: it had none yet"""
        self.refusal: InvalidInput | None = None
        """why the test cannot run"""
        self.never: GeneratorLost | None = None
        """why it will not be assigned any more"""
        self.is_dropped = False
        """the run goes on without it"""
        self._fleet = fleet
        self.numbers = range(first, first + processes)
        """of its processes"""
        self._of = of
        self._endings: set[asyncio.Task[None]] = set()
        """of assignments that the store says are over: if their machine lives, it hears that before the next one
        goes"""
        self._told = ""
        """why its last assignment was lost"""

    @property
    def name(self) -> str:
        return f"slice {self.number}" if self.link is None else self.link.name

    @property
    def live(self) -> SliceLink | None:
        """The link, unless it is lost."""
        return self.link if self.link is not None and self.link.loss is None else None

    @property
    def ready(self) -> SliceLink | None:
        """The link, if the slice can go."""
        if self._endings:
            return None
        return self.live if self.live is not None and self.live.is_ready else None

    @property
    def error(self) -> InvalidInput | GeneratorLost | None:
        """Why it will never be ready."""
        return self.refusal or self.never

    def unready(self, rule: str) -> str:
        """Why it is not ready. `rule`: for one that is working on it."""
        if self.error is not None:
            return str(self.error)
        if self.live is not None:
            return str(self.live.not_done(rule))
        waits = f"slice {self.number}: {self._fleet.assignments.waiting(self.number)}"
        return f"{waits}; before, {self._told}" if self._told else waits

    async def keep(self) -> None:
        """Take one assignment after the other."""
        try:
            await self._keep()
        finally:
            for task in self._endings:
                task.cancel()

    async def _keep(self) -> None:
        fleet, token = self._fleet, 0
        try:
            while True:
                member = await fleet.assignments.after(self.number, token)
                token = member.token
                link = self._linked(member)
                if self.is_dropped:
                    await self._drop(link)
                    return
                await self._serve(link)
        except GeneratorLost as error:
            self.never = error
            fleet.change()

    def _linked(self, member: FleetMember) -> SliceLink:
        fleet = self._fleet
        link = SliceLink(
            fleet.bus,
            member,
            job=fleet.job,
            number=self.number,
            first=self.numbers.start,
            epoch=fleet.epoch,
            settings=fleet.settings,
            clock=fleet.clock,
            steady=fleet.steady,
            leads=fleet.leads,
            together=fleet.together,
            on_window=lambda window: fleet.merger.add(self.number, window),
            on_change=fleet.change,
        )
        if fleet.is_stopping:
            link.hurry(fleet.settings.let_go_s)
        self.link = link
        fleet.change()
        return link

    async def _serve(self, link: SliceLink) -> None:
        """Prepare an assignment, and stay in contact until it is lost and has ended."""
        tasks = [asyncio.ensure_future(one) for one in (link.keep_contact(), self._watch(link), self._prepare(link))]
        losing = asyncio.ensure_future(link.lost.wait())
        try:
            running: set[asyncio.Task[Any]] = {losing, *tasks}
            while not losing.done():
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
            self._told = str(link.loss)
            # a load that was lost is counted before anything else happens
            await self._fleet.until(lambda: not link.is_loading)
            await self._end(link)
        finally:
            for task in (losing, *tasks):
                task.cancel()
            await asyncio.wait((losing, *tasks))

    async def _watch(self, link: SliceLink) -> None:
        try:
            why = await self._fleet.assignments.over(self.number, link.member.token)
        except GeneratorLost as error:
            why = str(error)
        link.is_fenced = True
        link.lose(why)

    async def _prepare(self, link: SliceLink) -> None:
        fleet = self._fleet
        running = fleet.running_go
        try:
            if running is not None and running.tokens[self.number] == link.member.token:
                # it has obeyed a leader before: what it knows of the load matters more than whether it can go on
                link.expect_load()
            elif not fleet.is_ending():
                order = PrepareSlice(
                    order=fleet.order,
                    limits=fleet.limits,
                    processes=self.processes,
                    first=self.numbers.start,
                    of=self._of,
                )
                measuring = asyncio.ensure_future(self._measure(link))
                try:
                    await link.ask(
                        order,
                        CommandAccepted,
                        key="prepare",
                        doing="it was preparing (it loads the test and looks up its hosts)",
                        limit_s=fleet.limits.begin_s + fleet.settings.lost_s,
                    )
                    await measuring
                finally:
                    measuring.cancel()
                    measuring.add_done_callback(_retrieved)
            await self._measure(link)
            link.is_ready = True
        except InvalidInput as error:
            # what one node lacks others may have
            self.refusal = InvalidInput(error.field, f"{link.name}: {error.rule}")
        except GeneratorLost as error:
            link.fail(error)
        fleet.change()

    async def _measure(self, link: SliceLink) -> None:
        while len(link.peer_clock) < ROUND_TRIPS:
            await link.ping()

    async def _dismiss(self, link: SliceLink) -> None:
        try:
            await link.dismiss()
        except MainstayError as error:
            # another leader, or no bus
            self._fleet.fail(error)

    def _dismissed(self, ending: asyncio.Task[None]) -> None:
        self._endings.discard(ending)
        self._fleet.change()

    async def _end(self, link: SliceLink) -> None:
        """End an assignment that is lost. Its node must not run load when another one begins."""
        if link.is_fenced:
            ending = asyncio.ensure_future(self._dismiss(link))
            self._endings.add(ending)
            ending.add_done_callback(self._dismissed)
        elif not await link.dismiss():
            await self._fleet.assignments.give_up(self.number, link.member.token, str(link.loss))

    async def _drop(self, link: SliceLink) -> None:
        """End an assignment that is not wanted any more."""
        with contextlib.suppress(TimeoutError, GeneratorLost):
            async with asyncio.timeout(self._fleet.settings.ready_s):
                await link.ask(ReleaseSlice(), CommandAccepted)


def _retrieved(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # the slice was lost, which its caller knows


__all__ = ["ROUND_TRIPS", "LedSlice"]
