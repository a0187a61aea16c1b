"""Processes that submit, claim and complete until they are killed, and tell what was acknowledged.

Run as: worker.py URL. It reads lines `NAME SEED PIPE`, starts a process for each and prints its number. Those are
forked, because starting Python hundreds of times would take most of the test's time; nothing is open yet when they are.

Each tells through its pipe, after the answer and in one write: what was told had happened. Lines are `made ID`,
`claimed ID TOKEN`, `done ID TOKEN`, `refused ID TOKEN OUTCOME`, `reaped ID TOKEN`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable

from mainstay.errors import TooManyConflicts
from mainstay.model import IdSource, Job, Session
from mainstay.stores import JobStore, open_store
from mainstay.testing import new_job
from tests.conformance.world import World

QUEUE = "default"


def tell(lines: Iterable[str]) -> None:
    """One write: less than a pipe's buffer, so it is told whole or not at all."""
    text = "".join(f"{line}\n" for line in lines)
    if text:
        os.write(1, text.encode())


class Worker:
    def __init__(self, store: JobStore, name: str, seed: str) -> None:
        self._store = store
        self._name = name
        self._rng = random.Random(seed)
        self._clock = store.clock
        self._ids = IdSource(random.Random(f"{seed} {name}"))
        self._world = World(store, self._clock)  # type: ignore[arg-type]

    async def run(self) -> None:
        await self._store.open_session(Session(id=self._name, pid=os.getpid(), lease_s=3600))
        tell(["ready"])
        while True:
            # several calls at once, so that they share a commit and die in it together
            await asyncio.gather(
                *(self._try(self._rng.choice([self._submit, self._work, self._work])) for _ in range(3))
            )
            if self._rng.random() < 0.1:
                await self._try(self._reap)

    async def _try(self, act: Callable[[], Awaitable[None]]) -> None:
        # an answer like any other: nothing was written, so there is nothing to tell
        with contextlib.suppress(TooManyConflicts):
            await act()

    async def _submit(self) -> None:
        batch = [new_job(self._clock, self._ids, actor=self._name) for _ in range(self._rng.randint(1, 10))]
        tell(f"made {made.id}" for made in await self._store.insert(batch))

    async def _work(self) -> None:
        claimed = await self._store.claim([QUEUE], self._name, self._rng.randint(1, 8))
        tell(f"claimed {job.id} {job.token}" for job in claimed)
        if not claimed:
            return
        changes = [self._world.change(job, "succeeded", holder=self._name) for job in claimed]
        answers = await self._store.apply(changes)
        tell(_told(job, answer.outcome) for job, answer in zip(claimed, answers, strict=True))

    async def _reap(self) -> None:
        late = await self._store.overdue(20)
        changes = [self._world.change(each.job, "timed_out", "pending", actor="reaper") for each in late]
        answers = await self._store.apply(changes)
        tell(
            f"reaped {each.job.id} {each.job.token}"
            for each, answer in zip(late, answers, strict=True)
            if answer.outcome == "applied"
        )


def _told(job: Job, outcome: str) -> str:
    return f"done {job.id} {job.token}" if outcome == "applied" else f"refused {job.id} {job.token} {outcome}"


async def live(url: str, name: str, seed: str) -> None:
    await Worker(await open_store(url), name, seed).run()


def main(url: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # the driver's import is most of a process's start; nothing is open after it
    scheme = url.partition(":")[0]
    package = {"postgresql": "postgres", "file": "registry"}.get(scheme, scheme)
    importlib.import_module(f"mainstay.stores.{package}")
    for line in sys.stdin:
        name, seed, pipe = line.split()
        number = os.fork()
        if number == 0:
            os.dup2(os.open(pipe, os.O_WRONLY), 1)
            asyncio.run(live(url, name, seed))
        print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
