"""Mainstay in the same loops, through the public API."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

from mainstay.control import Completion, Control, JobRequest
from mainstay.stores import open_store


async def open_control(path: Path) -> Control:
    return Control(await open_store(f"sqlite:///{path}"), rng=random.Random())


async def submit_bulk(control: Control, n: int, batch: int) -> None:
    plan = control.jobs.plan()
    for start in range(0, n, batch):
        await control.jobs.submit_many(
            [JobRequest("bench.task", {"i": i}, plan) for i in range(start, min(start + batch, n))]
        )


async def submit_singly(control: Control, n: int, tasks: int) -> None:
    """Many callers, one job each at a time: group commit is what makes this fast."""
    plan = control.jobs.plan()
    left = iter(range(n))

    async def caller() -> None:
        for i in left:
            await control.jobs.submit_many([JobRequest("bench.task", {"i": i}, plan)])

    await asyncio.gather(*(caller() for _ in range(tasks)))


async def drain(control: Control, batch: int) -> int:
    """Claim and complete until nothing is left."""
    session = await control.claims.open_session(pid=os.getpid())
    done = 0
    while jobs := await control.claims.claim(["default"], session.id, batch):
        outcomes = await control.attempts.complete([Completion(job) for job in jobs])
        done += sum(outcome.outcome == "applied" for outcome in outcomes)
    await control.claims.close_session(session.id)
    return done


def run(path: Path, work: Any) -> Any:
    """Run `work(control)` on a store of its own."""

    async def whole() -> Any:
        control = await open_control(path)
        try:
            return await work(control)
        finally:
            await control.store.close()

    return asyncio.run(whole())
