"""What all parts of the demo share: the store, the workers, the screen, and ways to read and to wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import demo_tasks
from demo_jobs import UNKNOWN
from demo_view import Screen
from demo_workers import Workers

from mainstay.control import Control
from mainstay.lifecycle import JOB
from mainstay.model import Job, Lane
from mainstay.stores import JobStore, Query

_LOOK_S = 0.1
_ASK_S = 0.03
_MOST = 500


class DemoState:
    """Made with an open app."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.control: Control = demo_tasks.app.control
        self.store: JobStore = self.control.store
        self.workers = Workers(folder)
        self.names: dict[str, str] = {}
        """of the workers, by session"""
        self.problems: list[str] = []
        """what was not as expected"""
        self._counts: Mapping[str, int] = dict.fromkeys(JOB.states, 0)
        self.screen = Screen(self)

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of jobs by status."""
        return self._counts

    @property
    def worker_states(self) -> Mapping[str, str]:
        """The state of each worker: works, frozen, dead."""
        return self.workers.worker_states

    async def watch(self) -> None:
        """Update the counts until cancelled."""
        while True:
            await self.look()
            self.screen.tick()
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Read the counts and the names of the sessions once."""
        counts: Counter[str] = Counter()
        for queue in (await self.control.store.stats()).queues.values():
            counts.update(queue.counts)
        self._counts = {name: counts[name] for name in (*JOB.states, *(counts.keys() - JOB.states.keys()))}
        self.names |= {session.id: session.worker for session in await self.store.sessions()}

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a condition is true."""
        while not await condition():
            await asyncio.sleep(_ASK_S)

    async def jobs(self, tag: str) -> list[Job]:
        """The jobs with a tag, as they are now."""
        return (await self.control.store.find(Query(tag=tag), limit=_MOST)).jobs

    async def job(self, tag: str) -> Job:
        """The only job with a tag."""
        (found,) = await self.jobs(tag)
        return found

    async def all_settled(self) -> bool:
        """Whether all jobs have settled, except the one whose task no worker has."""
        await self.look()
        parked = sum(job.lane == Lane.ROUTED for job in await self.jobs(UNKNOWN))
        return sum(n for name, n in self.counts.items() if not JOB.states[name].settled) == parked > 0

    async def worker_of(self, job: Job) -> str:
        """The name of the worker that holds a job."""
        await self.look()
        return self.names[job.session or ""]

    def named(self, text: str) -> str:
        """Replace session ids by the names of their workers."""
        for session, name in self.names.items():
            text = text.replace(f"session {session}", name).replace(session, name)
        return text
