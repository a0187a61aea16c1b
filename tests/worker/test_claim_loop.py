"""Claiming: how many are under way, and what becomes of them when one falls short, fails or is called off."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from mainstay.errors import StoreUnavailable
from mainstay.model import Job
from mainstay.testing import MemoryStore, a_job
from mainstay.worker.claim_loop import ClaimLoop


class Desk:
    """Answers claims by hand, and wants ten at a time until so many are asked for or taken."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.under_way: list[tuple[int, asyncio.Future[int]]] = []
        self.changed = asyncio.Event()
        self.called_off = 0
        self.room = asyncio.Event()
        self.claims = ClaimLoop(
            MemoryStore(),
            queues=lambda: ("default",),
            wanted=lambda asked: max(0, min(10, self.most - asked)),
            claim=self.claim,
            room=self.room,
            poll_s=60.0,
            rng=random.Random(1),
        )

    async def claim(self, n: int) -> list[Job]:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        entry = (n, answer)
        self.under_way.append(entry)
        self.changed.set()
        try:
            taken = await answer
        except asyncio.CancelledError:
            self.called_off += 1
            raise
        finally:
            self.under_way.remove(entry)
            self.changed.set()
        self.most -= taken
        return [a_job("running")] * taken

    async def until(self, *asked: int) -> None:
        """Wait until just these are under way, and stay so for some turns of the loop."""
        async with asyncio.timeout(60):
            while True:
                if [n for n, _ in self.under_way] == list(asked):
                    for _ in range(10):
                        await asyncio.sleep(0)
                    if [n for n, _ in self.under_way] == list(asked):
                        return
                self.changed.clear()
                await self.changed.wait()

    def answer(self, taken: int) -> None:
        """To the oldest."""
        self.under_way[0][1].set_result(taken)

    def fail(self, error: Exception) -> None:
        self.under_way[0][1].set_exception(error)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk(most=1000)
    task = asyncio.create_task(desk.claims.run())
    yield desk
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_one_claim_is_under_way_until_it_is_known_that_there_is_more(desk: Desk) -> None:
    await desk.until(10)
    desk.answer(10)
    await desk.until(10, 10)
    desk.answer(10)
    await desk.until(10, 10)


async def test_what_was_asked_for_is_not_asked_for_again(desk: Desk) -> None:
    await desk.until(10)
    desk.most = 25
    desk.answer(10)
    await desk.until(10, 5)
    desk.answer(10)
    await desk.until(5)
    desk.most += 3
    desk.room.set()
    await desk.until(5, 3)


async def test_a_claim_that_falls_short_leaves_one_that_looks_again(desk: Desk) -> None:
    await desk.until(10)
    desk.answer(10)
    await desk.until(10, 10)
    desk.answer(3)
    await desk.until(10)
    desk.answer(0)
    await desk.until(10)
    desk.answer(0)
    await desk.until()


async def test_a_claim_that_fails_calls_off_the_other_and_is_tried_again(desk: Desk) -> None:
    await desk.until(10)
    desk.answer(10)
    await desk.until(10, 10)
    desk.fail(StoreUnavailable("gone"))
    await desk.until(10)
    assert desk.called_off == 1


async def test_a_second_claim_that_fails_is_tried_again_once_the_first_is_answered(desk: Desk) -> None:
    await desk.until(10)
    desk.answer(10)
    await desk.until(10, 10)
    desk.under_way[1][1].set_exception(StoreUnavailable("gone"))
    await desk.until(10)
    desk.answer(10)
    await desk.until(10)
    assert desk.called_off == 0


async def test_all_are_called_off_when_it_ends() -> None:
    desk = Desk(most=1000)
    task = asyncio.create_task(desk.claims.run())
    await desk.until(10)
    desk.answer(10)
    await desk.until(10, 10)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert desk.called_off == 2
    assert desk.under_way == []


async def test_one_that_waits_for_room_beside_a_claim_that_falls_short_holds_nothing_up(desk: Desk) -> None:
    await desk.until(10)
    desk.most = 20
    desk.answer(10)
    await desk.until(10)  # and the second waits: what there is room for has been asked for
    desk.answer(0)
    await desk.until(10)
