"""What the shell offers when somebody presses Tab.

States come from the table; queues, ids, schedules, limited keys and task names from the store, if `--store` or
MAINSTAY_STORE names one. An app is not imported for this: Tab must not run the user's code. Whatever goes wrong,
nothing is offered.
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

#: how many of the newest jobs are offered
_RECENT = 50
#: how many of the newest jobs are asked for their names
_NAMED_BY = 500


def states(incomplete: str) -> Offers:
    """States, also after a comma."""
    before, comma, last = incomplete.rpartition(",")
    return [(before + comma + s.name, s.meaning) for s in JOB.states.values() if s.name.startswith(last)]


def state(incomplete: str) -> Offers:
    """One state."""
    return [(s.name, s.meaning) for s in JOB.states.values() if s.name.startswith(incomplete)]


def queues(ctx: typer.Context, incomplete: str) -> Offers:
    """Queues that have jobs or settings."""

    async def look(store: JobStore) -> Offers:
        counts = {name: sum(queue.counts.values()) for name, queue in (await store.stats()).queues.items()}
        for queue in await store.queues():
            counts.setdefault(queue.name, 0)
        return [(name, f"{n:,} jobs") for name, n in sorted(counts.items()) if not is_private(name)]

    return _offered(ctx, incomplete, look)


def jobs(ctx: typer.Context, incomplete: str) -> Offers:
    """The newest jobs, by id."""

    async def look(store: JobStore) -> Offers:
        page = await store.find(Query(), limit=_RECENT)
        return [(job.id, f"{job.name} {job.status}") for job in page.jobs]

    return _offered(ctx, incomplete, look)


def workers(ctx: typer.Context, incomplete: str) -> Offers:
    """Workers that are at work, by name."""

    async def look(store: JobStore) -> Offers:
        living = [session for session in await store.sessions() if session.worker and not session.dead]
        return [(name, host) for name, host in sorted({each.worker: each.host for each in living}.items())]

    return _offered(ctx, incomplete, look)


def schedules(ctx: typer.Context, incomplete: str) -> Offers:
    """Schedules that are stored."""

    async def look(store: JobStore) -> Offers:
        return [(row.name, "paused" if row.paused else "") for row in await store.schedules()]

    return _offered(ctx, incomplete, look)


def limits(ctx: typer.Context, incomplete: str) -> Offers:
    """Concurrency keys that have a limit."""

    async def look(store: JobStore) -> Offers:
        return [(key, f"at most {most:,}") for key, most in sorted((await store.limits()).items())]

    return _offered(ctx, incomplete, look)


def tasks(ctx: typer.Context, incomplete: str) -> Offers:
    """Names that jobs were submitted under lately."""

    async def look(store: JobStore) -> Offers:
        page = await store.find(Query(), limit=_NAMED_BY)
        return [(name, "") for name in sorted({job.name for job in page.jobs})]

    return _offered(ctx, incomplete, look)


def _offered(ctx: typer.Context, incomplete: str, look: Callable[[JobStore], Awaitable[Offers]]) -> Offers:
    url = ctx.params.get("store")
    if not url:
        return []

    async def ask() -> Offers:
        async with opened(url) as store:
            return await look(store)

    try:
        found = asyncio.run(ask())
    except Exception:  # noqa: BLE001 - in the middle of a line nobody can read an error
        return []
    return [offer for offer in found if offer[0].startswith(incomplete)]
