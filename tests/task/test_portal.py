"""Async code for threads without a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from mainstay.errors import MainstayError
from mainstay.task.portal import Portal


@pytest.fixture
def portal() -> Iterator[Portal]:
    made = Portal()
    yield made
    made.close()


async def where() -> str:
    return threading.current_thread().name


def test_a_coroutine_runs_in_the_portals_thread(portal: Portal) -> None:
    assert not portal.is_open
    assert portal.run(where, what="where_sync") == "mainstay-sync"


def test_what_it_raises_is_raised_here(portal: Portal) -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        portal.run(fail, what="fail_sync")


def test_many_threads_share_one_loop(portal: Portal) -> None:
    together = 8
    arrived: asyncio.Barrier | None = None

    async def meet() -> int:
        nonlocal arrived
        arrived = arrived or asyncio.Barrier(together)
        await arrived.wait()
        return id(asyncio.get_running_loop())

    with ThreadPoolExecutor(together) as pool:
        loops = list(pool.map(lambda _: portal.run(meet, what="meet_sync"), range(together)))

    assert len(set(loops)) == 1


async def test_on_a_running_loop_it_refuses_instead_of_blocking_it(portal: Portal) -> None:
    with pytest.raises(MainstayError, match="submit_sync would block the event loop .* `await submit"):
        portal.run(where, what="submit_sync")


def test_it_can_be_used_again_after_it_was_closed(portal: Portal) -> None:
    portal.run(where, what="where_sync")
    portal.close()
    portal.close()

    assert not portal.is_open
    assert portal.run(where, what="where_sync") == "mainstay-sync"


def test_closing_it_ends_the_waits_of_others(portal: Portal) -> None:
    waiting = threading.Event()

    async def forever() -> None:
        waiting.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(portal.run, forever, what="wait_sync")
        waiting.wait()
        portal.close()

        assert isinstance(stuck.exception(), CancelledError)
