"""One soak: a server, a fleet, a submitter, somebody who kills, and the account."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

import servers
from mainstay.control import Control, JobRequest
from mainstay.stores import JobStore, open_store
from servers import Postgres, Redis

from .account import Account, taken
from .fleet import Fleet
from .tasks import pass_through

_BATCH = 1000
#: so that submitting and working go on together, as they do for users
_AHEAD = 50_000
#: no job was done for so long: something is wrong
_STUCK_S = 120.0
#: however often they are hit, they are tried again: these jobs are unlucky, not poison
_PATIENT = {"crash_budget": 1000, "retries": 1000}

#: (what goes on, how many of how many)
Tell = Callable[[str, int, int], None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much, and how hard."""

    jobs: int = 1_000_000
    engines: int = 10
    kill_every_s: float = 5.0
    """on average"""
    most_kills: int | None = None
    seed: int = 1


class Soak(msgspec.Struct, kw_only=True):
    """What was found."""

    at: str
    store: str
    server: str
    durability: str
    machine: str
    load_before: float
    """the load average when it began: what others did on the machine"""
    plan: Plan
    took_s: float = 0.0
    """from the first submit to the last settled job"""
    kills: dict[str, int] = {}
    drained: bool = False
    """every worker ended by itself when it was asked to"""
    account: Account = msgspec.field(default_factory=Account)

    @property
    def rate(self) -> float:
        return self.account.succeeded / self.took_s if self.took_s else 0.0

    @property
    def right(self) -> bool:
        return self.account.right and self.drained and self.account.succeeded == self.plan.jobs


class Stuck(Exception):
    """No job was done for a long time."""


async def soak(store: str, plan: Plan, tell: Tell) -> Soak:
    """Run it on `postgres` or `redis`, whose servers it starts, or on the store of a URL, which must be empty."""
    with servers.folder("mainstay-soak-") as folder, _server(store, folder) as (url, version):
        opened = await open_store(url)
        try:
            if sum(sum(queue.counts.values()) for queue in (await opened.stats()).queues.values()):
                raise ValueError(
                    "the store has jobs already; every job of a soak is accounted for, so give an empty one"
                )
            found = Soak(
                at=time.strftime("%Y-%m-%d"),
                store=url.partition(":")[0],
                server=version,
                durability=opened.durability,
                machine=f"{os.cpu_count()} cores, {platform.system()}",
                load_before=round(os.getloadavg()[0], 1),
                plan=plan,
            )
            await _run(opened, url, folder / "workers.log", found, tell)
        finally:
            await opened.close()
    return found


@contextlib.contextmanager
def _server(store: str, folder: Path) -> Iterator[tuple[str, str]]:
    """The URL of the store, and what its server calls itself."""
    if store == "postgres":
        server: Postgres | Redis = Postgres(folder, port=None, max_connections="300")
        version = f"PostgreSQL {server.version}"
    elif store == "redis":
        server = Redis(folder, appendonly="yes", appendfsync="everysec")
        version = f"Redis {server.version}"
    else:
        yield store, ""
        return
    try:
        yield f"{server.url()}?auto_migrate=on", version
    finally:
        server.stop()


async def _run(store: JobStore, url: str, log: Path, found: Soak, tell: Tell) -> None:
    plan = found.plan
    fleet = Fleet(url, plan.engines, log)
    began = time.monotonic()
    acknowledged: set[str] = set()
    done = asyncio.Event()
    try:
        submitting = asyncio.create_task(_submit(Control(store), plan, acknowledged))
        killing = asyncio.create_task(_kill(fleet, plan, done))
        try:
            await _until_done(store, plan, submitting, tell)
        finally:
            done.set()
            submitting.cancel()
            await asyncio.gather(killing, submitting, return_exceptions=True)
        found.took_s = round(time.monotonic() - began, 1)
        found.kills = dict(fleet.kills)
        found.drained = await asyncio.to_thread(fleet.drain) == [0] * len(fleet)
    except Stuck as error:
        raise Stuck(f"{error}\n{fleet.told()}") from None
    finally:
        fleet.close()
    found.account = await taken(store, acknowledged, lambda n: tell("accounting", n, plan.jobs))


async def _submit(control: Control, plan: Plan, acknowledged: set[str]) -> None:
    for first in range(0, plan.jobs, _BATCH):
        numbers = range(first, min(first + _BATCH, plan.jobs))
        asked = [JobRequest(pass_through.name, {"number": number}, _PATIENT) for number in numbers]
        acknowledged.update(made.id for made in await control.jobs.submit_many(asked))
        while len(acknowledged) - await _succeeded(control.store) > _AHEAD:  # noqa: ASYNC110  # a store's counter
            await asyncio.sleep(0.2)


async def _kill(fleet: Fleet, plan: Plan, done: asyncio.Event) -> None:
    rng = random.Random(plan.seed)
    while plan.most_kills is None or fleet.kills.total() < plan.most_kills:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rng.uniform(0, 2 * plan.kill_every_s)):
                await done.wait()
            return
        fleet.strike(rng)


async def _until_done(store: JobStore, plan: Plan, submitting: asyncio.Task[None], tell: Tell) -> None:
    succeeded, moved = 0, time.monotonic()
    while succeeded < plan.jobs:
        await asyncio.sleep(1)
        if submitting.done():
            submitting.result()
        before, succeeded = succeeded, await _succeeded(store)
        tell("working", succeeded, plan.jobs)
        if succeeded > before:
            moved = time.monotonic()
        elif time.monotonic() - moved > _STUCK_S:
            raise Stuck(f"{succeeded} of {plan.jobs} are done, and nothing moved for {_STUCK_S:.0f} s")


async def _succeeded(store: JobStore) -> int:
    return sum(queue.counts.get("succeeded", 0) for queue in (await store.stats()).queues.values())
