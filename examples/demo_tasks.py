"""The app of the demo and its tasks. Each task ends in one way, the same in every run.

`demo.py` sets the store in the environment (MAINSTAY_STORE). Workers run the app like any other: `mainstay worker
demo_tasks:app`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import msgspec

from mainstay import App, context

app = App()


class CardRefused(Exception):
    """A permanent error: a retry would not help."""


class Primes(msgspec.Struct, frozen=True):
    """A result of a declared type."""

    below: int
    count: int
    pid: int


@app.task(name="mail.send", queue="mail")
async def send_mail(to: str, takes_s: float = 0.05) -> str:
    await asyncio.sleep(takes_s)
    return f"sent to {to}"


@app.task(name="image.resize")
def resize_image(width: int) -> str:
    """A plain function: it runs in a thread."""
    time.sleep(0.02 + width / 10_000)
    return threading.current_thread().name


@app.task(name="primes.count", process=True)
def count_primes(below: int) -> Primes:
    """CPU-bound: it runs in a child process."""
    sieve = bytearray([1]) * below
    for n in range(2, int(below**0.5) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, below, n)))
    return Primes(below, sum(sieve[2:]), os.getpid())


@app.task(name="memory.eat", process=True, crash_budget=2)
def eat_memory() -> None:
    """Ends like a process that the kernel kills for its memory use."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="api.call")
async def call_api(succeeds_at: int) -> int:
    if context().attempt < succeeds_at:
        raise ConnectionError("the other side hung up")
    return context().attempt


@app.task(name="file.parse", retries=1)
async def parse_file(name: str) -> None:
    raise ValueError(f"{name}, line 7: not a number: 'n/a'")


@app.task(name="card.charge", give_up_on=CardRefused)
async def charge_card(card: int) -> None:
    raise CardRefused(f"card {card} has expired")


@app.task(name="video.encode", timeout="300ms", retries=1)
async def encode_video() -> None:
    await asyncio.sleep(3600)


@app.task(name="feed.follow", stall_timeout="500ms", on_stall="hold")
async def follow_feed() -> None:
    """Makes progress, then stalls."""
    for done in range(3):
        context().progress(done, 100)
        await asyncio.sleep(0.1)
    await asyncio.sleep(3600)


@app.task(name="door.watch", priority=50)
async def watch_door() -> None:
    """Runs until it is cancelled."""
    await asyncio.Event().wait()


@app.task(name="square")
async def square(n: int) -> int:
    return n * n


@app.task(name="total")
async def total() -> int:
    """The callback of the group: runs once, after all squares."""
    return sum(member.result for member in await context().inputs())


@app.task(name="receipt.send")
async def send_receipt(order: int) -> str:
    return f"receipt {order}"


@app.task(name="order.place")
async def place_order(order: int) -> None:
    """The follow-up is stored in the transaction that completes this job, or not at all."""
    context().submit(send_receipt.options(tags=["receipt"]).job(order))


@app.task(name="orders.import", priority=50)
async def import_orders(parts: int) -> str:
    """Saves its progress; the first attempt stops half-way, until its worker is killed."""
    began = context().checkpoint or 0
    for part in range(began, parts):
        if part == parts // 2 and context().attempt == 1:
            await asyncio.Event().wait()
        await context().save(part + 1)
        context().progress(part + 1, parts)
    return f"began at part {began}"


@app.task(name="report.render", priority=50)
def render_report(until: str) -> str:
    """The first attempt waits for a file. A thread cannot be interrupted: when its frozen worker continues, the attempt
    returns a result, which the store refuses."""
    if context().attempt > 1:
        return "rendered"
    ends = time.monotonic() + 60
    while not Path(until).exists() and time.monotonic() < ends:
        time.sleep(0.02)
    return "rendered by a stale attempt"
