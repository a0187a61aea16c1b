"""One open store, whoever asks first."""

from __future__ import annotations

import asyncio

import pytest

from mainstay.control import Control
from mainstay.errors import StoreClosed
from mainstay.task.connection import StoreConnection
from mainstay.testing import MemoryStore


class Opener:
    """Opens a memory store when it is let."""

    def __init__(self) -> None:
        self.calls = 0
        self.may = asyncio.Event()
        self.fails: Exception | None = None
        self.asked = asyncio.Event()

    async def __call__(self) -> Control:
        self.calls += 1
        self.asked.set()
        await self.may.wait()
        if self.fails is not None:
            raise self.fails
        return Control(MemoryStore())


async def test_many_that_open_at_once_get_one_store() -> None:
    opener = Opener()
    connection = StoreConnection(opener)
    asking = [asyncio.create_task(connection.open()) for _ in range(5)]
    await opener.asked.wait()

    opener.may.set()

    assert len({id(control) for control in await asyncio.gather(*asking)}) == 1
    assert opener.calls == 1


async def test_the_first_being_cancelled_leaves_the_others_their_store() -> None:
    opener = Opener()
    connection = StoreConnection(opener)
    first = asyncio.create_task(connection.open())
    await opener.asked.wait()
    second = asyncio.create_task(connection.open())

    first.cancel()
    opener.may.set()

    assert await second is connection.control
    assert first.cancelled()
    assert opener.calls == 1


async def test_a_failure_is_told_to_all_and_the_next_one_tries_again() -> None:
    opener = Opener()
    opener.fails = OSError("locked")
    connection = StoreConnection(opener)
    asking = [asyncio.create_task(connection.open()) for _ in range(2)]
    await opener.asked.wait()
    opener.may.set()

    assert [str(error) for error in await asyncio.gather(*asking, return_exceptions=True)] == ["locked", "locked"]
    opener.fails = None
    assert await connection.open() is connection.control


async def test_a_closed_one_opens_again() -> None:
    opener = Opener()
    opener.may.set()
    connection = StoreConnection(opener)
    first = await connection.open()

    await connection.close()
    await connection.close()

    with pytest.raises(StoreClosed):
        await first.store.stats()
    assert await connection.open() is not first


async def test_closing_while_it_opens_closes_what_was_opened() -> None:
    opener = Opener()
    connection = StoreConnection(opener)
    opening = asyncio.create_task(connection.open())
    await opener.asked.wait()
    closing = asyncio.create_task(connection.close())

    opener.may.set()
    await closing

    assert connection.control is None
    with pytest.raises(StoreClosed):
        await (await opening).store.stats()


async def test_another_store_can_stand_in_for_a_while() -> None:
    opener = Opener()
    opener.may.set()
    connection = StoreConnection(opener)
    other = Control(MemoryStore())

    with connection.instead(other):
        assert await connection.open() is other

    assert connection.control is None
    assert await connection.open() is not other


async def test_what_closes_the_app_within_leaves_the_stand_in_where_it_is() -> None:
    opener = Opener()
    connection = StoreConnection(opener)
    other = Control(MemoryStore())

    with connection.instead(other):
        await connection.close()
        assert await connection.open() is other
        await other.store.stats()

    assert opener.calls == 0


async def test_the_last_one_to_leave_closes_it() -> None:
    opener = Opener()
    opener.may.set()
    connection = StoreConnection(opener)
    first = await connection.enter()
    second = await connection.enter()

    await connection.leave()
    await second.store.stats()
    await connection.leave()

    assert first is second
    assert connection.control is None
    assert await connection.enter() is not first


async def test_who_leaves_does_not_close_what_another_keeps() -> None:
    opener = Opener()
    opener.may.set()
    connection = StoreConnection(opener)
    kept = await connection.keep()
    await connection.enter()

    await connection.leave()
    await kept.store.stats()
    await connection.release()

    assert connection.control is None


async def test_a_release_leaves_it_to_those_who_entered() -> None:
    opener = Opener()
    opener.may.set()
    connection = StoreConnection(opener)
    control = await connection.enter()

    await connection.keep()
    await connection.release()
    await connection.release()
    await control.store.stats()
    await connection.leave()

    assert connection.control is None


async def test_a_keep_among_those_who_entered_does_not_outlive_them() -> None:
    opener = Opener()
    opener.may.set()
    connection = StoreConnection(opener)
    await connection.enter()
    await connection.keep()

    await connection.leave()

    assert connection.control is None


async def test_who_could_not_enter_holds_nothing() -> None:
    opener = Opener()
    opener.may.set()
    opener.fails = OSError("locked")
    connection = StoreConnection(opener)
    with pytest.raises(OSError, match="locked"):
        await connection.enter()
    opener.fails = None
    await connection.open()

    await connection.release()

    assert connection.control is None


async def test_who_enters_while_another_waits_to_close_it_gets_an_open_one() -> None:
    opener = Opener()
    connection = StoreConnection(opener)
    opening = asyncio.create_task(connection.open())
    await opener.asked.wait()
    closing = asyncio.create_task(connection.release())
    entering = asyncio.create_task(connection.enter())
    await asyncio.sleep(0)  # both have begun, and wait

    opener.may.set()
    await closing

    await (await entering).store.stats()
    assert await opening is connection.control
