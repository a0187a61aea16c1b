"""Timers fire in the order of their times, and never early."""

from __future__ import annotations

import asyncio
import time

from mainstay.load.target.timers import Timers


async def test_what_is_due_first_is_called_first() -> None:
    timers = Timers(asyncio.get_running_loop())
    called: list[str] = []
    done = asyncio.Event()
    now = time.perf_counter()
    timers.at(now + 0.006, lambda: (called.append("late"), done.set()))  # type: ignore[func-returns-value]
    timers.at(now + 0.003, called.append, "soon")
    timers.at(now + 0.003, called.append, "soon, and after")
    timers.at(now - 1, called.append, "long ago")
    await done.wait()
    timers.close()
    assert called == ["long ago", "soon", "soon, and after", "late"]


async def test_nothing_is_called_before_its_time() -> None:
    timers = Timers(asyncio.get_running_loop())
    early: list[float] = []
    done = asyncio.Event()
    start = time.perf_counter()
    for step in range(50):
        due = start + step * 0.0003
        timers.at(due, lambda due=due: early.append(time.perf_counter() - due))
    timers.at(start + 0.02, done.set)
    await done.wait()
    timers.close()
    assert len(early) == 50
    assert min(early) >= 0


async def test_a_call_may_ask_for_the_next_one() -> None:
    timers = Timers(asyncio.get_running_loop())
    done = asyncio.Event()
    timers.at(0.0, timers.at, time.perf_counter() + 0.001, done.set)
    await done.wait()
    timers.close()


async def test_what_is_closed_calls_nothing_more() -> None:
    timers = Timers(asyncio.get_running_loop())
    called: list[str] = []
    timers.at(time.perf_counter() + 0.001, called.append, "too late")
    timers.close()
    other = Timers(asyncio.get_running_loop())
    done = asyncio.Event()
    other.at(time.perf_counter() + 0.003, done.set)
    await done.wait()
    other.close()
    assert called == []
