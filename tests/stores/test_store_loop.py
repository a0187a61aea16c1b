"""The loop that a store's connections live on."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from mainstay.errors import StoreClosed
from mainstay.stores import store_loop
from mainstay.stores.store_loop import StoreLoop


@pytest.fixture
async def home() -> AsyncIterator[StoreLoop]:
    home = StoreLoop("somewhere")
    yield home
    await home.close()


@pytest.fixture(params=["a loop of its own", "the caller's loop", "a given loop"])
async def any_home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StoreLoop]:
    monkeypatch.setattr(store_loop, "_adopted", {})
    if request.param == "the caller's loop":
        store_loop.adopt_loop(asyncio.get_running_loop())
    home = StoreLoop("somewhere", loop=asyncio.get_running_loop() if request.param == "a given loop" else None)
    yield home
    await home.close()


async def at(home: StoreLoop, value: object = None) -> object:
    assert asyncio.get_running_loop() is home.loop
    return value


async def test_work_is_done_on_the_home_loop_and_its_answer_comes_back(any_home: StoreLoop) -> None:
    assert await any_home.run(lambda: at(any_home, 5)) == 5


async def test_an_error_comes_back_as_it_is(any_home: StoreLoop) -> None:
    async def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await any_home.run(fail)


async def test_work_from_the_home_loop_itself_is_done_in_place(home: StoreLoop) -> None:
    async def nested() -> object:
        return await home.run(lambda: at(home, "inner"))

    assert await home.run(nested) == "inner"


def test_it_serves_loops_in_several_threads() -> None:
    home = StoreLoop("somewhere")
    answers: list[object] = []

    def use(value: int) -> None:
        answers.append(asyncio.run(home.run(lambda: at(home, value))))

    threads = [threading.Thread(target=use, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(home.close())

    assert sorted(answers) == list(range(8))  # type: ignore[type-var]


class Gate:
    """Work that waits on the home loop until it is let through; both sides can be awaited from here."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.how = ""
        self._go: asyncio.Event | None = None

    async def work(self) -> str:
        self._go = asyncio.Event()
        self.begun.set()
        try:
            await self._go.wait()
        except asyncio.CancelledError:
            self.how = "cancelled"
            raise
        else:
            self.how = "finished"
            return "answer"
        finally:
            self.ended.set()

    def open(self, home: StoreLoop) -> None:
        assert self._go is not None
        home.loop.call_soon_threadsafe(self._go.set)


async def told(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 5)


async def test_cancelling_the_caller_cancels_the_work(any_home: StoreLoop) -> None:
    gate = Gate()
    call = asyncio.create_task(any_home.run(gate.work))
    await told(gate.begun)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    await told(gate.ended)
    assert gate.how == "cancelled"


async def test_work_with_an_undo_is_finished_and_then_undone(any_home: StoreLoop) -> None:
    gate, undone = Gate(), threading.Event()
    heard: list[str] = []

    async def undo(answer: str) -> None:
        heard.append(answer)
        undone.set()

    call = asyncio.create_task(any_home.run(gate.work, unheard=undo))
    await told(gate.begun)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.open(any_home)

    await told(undone)
    assert (gate.how, heard) == ("finished", ["answer"])


async def test_an_answer_that_came_just_before_the_cancel_is_undone_once(home: StoreLoop) -> None:
    heard: list[object] = []

    async def undo(answer: object) -> None:
        heard.append(answer)

    done = threading.Event()

    async def work() -> int:
        # after the answer is on its way to the caller's loop, which is held up below
        asyncio.get_running_loop().call_later(0.02, done.set)
        return 7

    call = asyncio.create_task(home.run(work, unheard=undo))
    await asyncio.sleep(0)
    assert done.wait(60)  # this loop stands still; the answer waits in it
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await home.close()

    assert heard == [7]


async def test_an_answer_whose_loop_is_gone_is_undone(any_home: StoreLoop) -> None:
    gate, undone = Gate(), threading.Event()

    async def undo(answer: str) -> None:
        undone.set()

    def leave_early() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(any_home.run(gate.work, unheard=undo))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # to be left behind is the point

    await asyncio.to_thread(leave_early)
    await told(gate.begun)
    gate.open(any_home)

    await told(undone)


async def test_closing_finishes_what_was_begun(any_home: StoreLoop) -> None:
    home, gate = any_home, Gate()
    call = asyncio.create_task(home.run(gate.work))
    await told(gate.begun)
    closing = asyncio.create_task(home.close())
    await asyncio.sleep(0)

    gate.open(home)

    assert await call == "answer"
    await closing
    assert home._gone.is_set()


async def test_it_can_be_closed_twice_and_is_refused_afterwards(any_home: StoreLoop) -> None:
    await asyncio.gather(any_home.close(), any_home.close())
    await any_home.close()

    with pytest.raises(StoreClosed, match="the store on somewhere was closed; open it again"):
        await any_home.run(lambda: at(any_home))


async def test_what_is_spawned_runs_on_the_home_loop(any_home: StoreLoop) -> None:
    ran = threading.Event()

    async def work() -> None:
        await at(any_home)
        ran.set()

    any_home.spawn(work)

    await told(ran)


def in_child(home: StoreLoop, said: Any) -> None:
    try:
        asyncio.run(home.run(lambda: at(home)))
    except StoreClosed as error:
        said.put(str(error))
    os._exit(0)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_is_told_instead_of_left_hanging() -> None:
    home = StoreLoop("somewhere")
    fork = multiprocessing.get_context("fork")
    said = fork.SimpleQueue()
    read: Callable[[], str] = said.get
    child = fork.Process(target=in_child, args=(home, said))
    child.start()

    assert "forked from" in read()
    child.join()
    asyncio.run(home.close())


async def test_a_store_on_the_callers_loop_serves_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_loop, "_adopted", {})
    store_loop.adopt_loop(asyncio.get_running_loop())
    home = StoreLoop("somewhere")

    def use() -> object:
        return asyncio.run(home.run(lambda: at(home, "from a thread")))

    assert await asyncio.to_thread(use) == "from a thread"
    await home.close()
    assert asyncio.get_running_loop().is_running()  # it was not its own to stop


async def test_a_loop_that_is_closed_is_nobodys_home_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_loop, "_adopted", {})
    gone = asyncio.new_event_loop()
    store_loop.adopt_loop(gone)
    gone.close()
    home = StoreLoop("somewhere")
    assert await home.run(lambda: at(home, "on a loop of its own")) == "on a loop of its own"
    await home.close()
