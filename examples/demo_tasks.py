"""What the demo's jobs do: each task meets one fate, the same in every run.

A task is a coroutine that gets the job as claimed and its payload as arguments; what it returns is the result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from mainstay.model import Job

QUEUES = ("default", "mail")


class CardRefused(Exception):
    """Trying again would not help, and the error says so."""

    code = "card_refused"
    retryable = False


async def send_mail(_job: Job, *, takes: float, **_: Any) -> str:
    await asyncio.sleep(takes)
    return "sent"


async def call_api(job: Job, *, takes: float, failures: int, **_: Any) -> str:
    """Fails a few times first."""
    await asyncio.sleep(takes)
    if job.failures < failures:
        raise ConnectionError("the other side hung up")
    return "ok"


async def parse_file(_job: Job, *, takes: float, **_: Any) -> str:
    """Fails every time."""
    await asyncio.sleep(takes)
    raise ValueError("line 7: not a number: 'n/a'")


async def charge_card(_job: Job, *, takes: float, **_: Any) -> str:
    await asyncio.sleep(takes)
    raise CardRefused("the card has expired")


async def watch_feed(_job: Job, **_: Any) -> str:
    """Goes on until somebody stops it."""
    await asyncio.sleep(3600)
    return "unreachable"


async def import_orders(job: Job, **_: Any) -> str:
    """Long at first; quick for whoever takes it over."""
    await asyncio.sleep(3600 if job.crashes == 0 else 0.2)
    return "imported"


async def render_report(job: Job, *, hangs_until: str, **_: Any) -> str:
    """Blocks its whole process the first time: no beat leaves it, as with a library that never lets go.

    Nothing is awaited after the hang, so the ghost's result is the first thing it sends.
    """
    if job.crashes == 0:
        ends = time.monotonic() + 30
        while not Path(hangs_until).exists() and time.monotonic() < ends:  # noqa: ASYNC240 - hanging is the point
            time.sleep(0.02)  # noqa: ASYNC251
        return "rendered by a ghost"
    return f"rendered by claim {job.token}"


TASKS: dict[str, Callable[..., Awaitable[Any]]] = {
    "mail.send": send_mail,
    "api.call": call_api,
    "file.parse": parse_file,
    "card.charge": charge_card,
    "feed.watch": watch_feed,
    "orders.import": import_orders,
    "report.render": render_report,
}
