"""What the shell offers when Tab is pressed.

States come from the table; queues, ids, schedules, limited keys and task names from the store, if `--store` or
MAINSTAY_STORE names one. The app is not imported: Tab must not run the user's code. After an error, nothing is offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import typer

from ..lifecycle import JOB
from ..model import is_private
from ..stores import JobStore, Query
from .common import opened

Offers = list[tuple[str, str]]
Completer = Callable[[typer.Context, str], Offers]

#: how many of the newest jobs are offered
_RECENT = 50
#: how many of the newest jobs are read for their names
_NAMED_BY = 500


def states(incomplete: str) -> Offers:
    """States, also after a comma."""
    before, comma, last = incomplete.rpartition(",")
    return [(before + comma + name, meaning) for name, meaning in state(last)]


def state(incomplete: str) -> Offers:
    """One state."""
    return [(s.name, s.meaning) for s in JOB.states.values() if s.name.startswith(incomplete)]


def _from_store(offer: Callable[[JobStore], Awaitable[Offers]]) -> Completer:
    """Completes from the offers of a function that reads the store."""

    async def read(url: str) -> Offers:
        async with opened(url) as store:
            return await offer(store)

    def complete(ctx: typer.Context, incomplete: str) -> Offers:
        url = ctx.params.get("store")
        if not url:
            return []
        try:
            offers = asyncio.run(read(url))
        except Exception:  # noqa: BLE001 - an error message would break the line that is being typed
            return []
        return [offered for offered in offers if offered[0].startswith(incomplete)]

    return complete


@_from_store
async def queues(store: JobStore) -> Offers:
    """Queues that have jobs or settings."""
    counts = {name: sum(queue.counts.values()) for name, queue in (await store.stats()).queues.items()}
    for queue in await store.queues():
        counts.setdefault(queue.name, 0)
    return [(name, f"{n:,} jobs") for name, n in sorted(counts.items()) if not is_private(name)]


@_from_store
async def jobs(store: JobStore) -> Offers:
    """Ids of the newest jobs."""
    page = await store.find(Query(), limit=_RECENT)
    return [(job.id, f"{job.name} {job.status}") for job in page.jobs]


@_from_store
async def workers(store: JobStore) -> Offers:
    """Names of the workers that are alive."""
    live = [session for session in await store.sessions() if session.worker and not session.dead]
    return sorted({session.worker: session.host for session in live}.items())


@_from_store
async def schedules(store: JobStore) -> Offers:
    """Names of the stored schedules."""
    return [(row.name, "paused" if row.paused else "") for row in await store.schedules()]


@_from_store
async def limits(store: JobStore) -> Offers:
    """Concurrency keys that have a limit."""
    return [(key, f"at most {most:,}") for key, most in sorted((await store.limits()).items())]


@_from_store
async def tasks(store: JobStore) -> Offers:
    """Names of the newest jobs."""
    page = await store.find(Query(), limit=_NAMED_BY)
    return [(name, "") for name in sorted({job.name for job in page.jobs})]
