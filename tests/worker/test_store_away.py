"""What a running job asks of the store while the store is away: the call waits, and the job pays nothing for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from mainstay.errors import RowDamaged, StoreFull, StoreLocked, StoreReadOnly, StoreUnavailable
from mainstay.testing import MemoryStore, VirtualClock
from mainstay.worker import context
from tests.worker.test_engine import Shift


@pytest.fixture
async def shift() -> AsyncIterator[Shift]:
    clock = VirtualClock()
    shift = Shift(MemoryStore(clock), clock)
    yield shift
    await shift.end()


class Switch:
    """Makes one call of an object fail, from `off` to `on`; `tried` is set by each failed call."""

    def __init__(self, owner: Any, name: str, error: Exception | None = None) -> None:
        self.tried = asyncio.Event()
        self._error = error or StoreUnavailable("the server is away")
        self._owner, self._name = owner, name
        self._call: Callable[..., Any] = getattr(owner, name)
        setattr(owner, name, self._made)
        self._away = True

    def on(self) -> None:
        self._away = False

    async def _made(self, *given: Any, **named: Any) -> Any:
        if self._away:
            self.tried.set()
            raise self._error
        return await self._call(*given, **named)


async def _saves() -> str:
    await context().save("half")
    return "done"


def _saves_in_a_thread() -> str:
    context().save_sync("half")
    return "done"


@pytest.mark.parametrize(
    "error",
    [StoreUnavailable("away"), StoreLocked("locked"), StoreFull("full"), StoreReadOnly("standby")],
    ids=lambda error: type(error).__name__,
)
async def test_a_checkpoint_waits_until_the_store_is_back(shift: Shift, error: Exception) -> None:
    shift.act(_saves)
    await shift.begin()
    switch = Switch(shift.control.claims, "report", error)
    job_id = await shift.submit("_saves", retries=0)
    await switch.tried.wait()
    switch.tried.clear()
    await switch.tried.wait()  # the second try: the first error did not reach the job
    switch.on()

    job = await shift.settled(job_id)

    assert (job.status, job.failures, job.crashes, job.token) == ("succeeded", 0, 0, 1)
    assert shift.stage.unpack(job.checkpoint or b"") == "half"


async def test_a_plain_function_waits_as_well(shift: Shift) -> None:
    shift.act(_saves_in_a_thread, "thread")
    await shift.begin()
    switch = Switch(shift.control.claims, "report")
    job_id = await shift.submit("_saves_in_a_thread", retries=0)
    await switch.tried.wait()
    switch.on()

    job = await shift.settled(job_id)

    assert (job.status, job.failures) == ("succeeded", 0)
    assert shift.stage.unpack(job.checkpoint or b"") == "half"


async def test_a_question_waits_as_well(shift: Shift) -> None:
    async def asks() -> list[str]:
        return [one.status for one in await context().inputs()]

    async def first() -> None: ...

    shift.act(asks)
    shift.act(first)
    await shift.begin()
    switch = Switch(shift.control.jobs, "awaited")
    job_id = await shift.submit("asks", retries=0, after=[await shift.submit("first")])
    await switch.tried.wait()
    switch.on()

    job = await shift.settled(job_id)

    assert job.status == "succeeded"
    assert shift.stage.unpack(job.result or b"") == ["succeeded"]


async def test_an_error_that_waiting_does_not_cure_is_raised_in_the_job(shift: Shift) -> None:
    shift.act(_saves)
    await shift.begin()
    Switch(shift.control.claims, "report", RowDamaged("the row cannot be read"))

    job = await shift.settled(await shift.submit("_saves", retries=0))

    assert job.status == "quarantined"
    assert job.error is not None
    assert job.error.code == "row_damaged"


async def test_an_extension_whose_answer_was_lost_is_not_lost(shift: Shift) -> None:
    """It was granted and written; the next try is refused, for lack of progress since."""
    granted: list[float] = []

    async def asks() -> None:
        context().progress(1)
        granted.append((await context().extend()).granted_s)

    shift.act(asks)
    await shift.begin()
    extend = shift.control.claims.extend
    answers = iter([False, True])

    async def cut(job: Any) -> Any:
        extension = await extend(job)
        if not next(answers):
            raise StoreUnavailable("the answer was lost")
        return extension

    shift.control.claims.extend = cut  # type: ignore[method-assign, assignment]

    job = await shift.settled(await shift.submit("asks", timeout="60s", retries=0))

    assert job.status == "succeeded"
    assert granted == [30.0]


async def test_progress_that_was_to_go_with_a_checkpoint_is_stored_when_the_store_is_back(shift: Shift) -> None:
    async def climbs() -> None:
        context().progress(1, 2)
        await context().save("half")

    shift.act(climbs)
    await shift.begin()
    switch = Switch(shift.control.claims, "report")
    job_id = await shift.submit("climbs")
    await switch.tried.wait()
    switch.on()

    job = await shift.settled(job_id)

    assert job.progress is not None
    assert job.progress.done == 1


async def test_checkpoints_are_stored_in_the_order_in_which_they_were_saved(shift: Shift) -> None:
    async def climbs() -> None:
        await asyncio.gather(*(context().save(step) for step in range(5)))

    shift.act(climbs)
    await shift.begin()
    switch = Switch(shift.control.claims, "report")
    job_id = await shift.submit("climbs")
    await switch.tried.wait()
    switch.on()

    job = await shift.settled(job_id)

    assert shift.stage.unpack(job.checkpoint or b"") == 4


@pytest.mark.parametrize("mode", ["loop", "thread"])
async def test_a_cancel_ends_the_wait(shift: Shift, mode: Any) -> None:
    shift.act(_saves if mode == "loop" else _saves_in_a_thread, mode)
    engine = await shift.begin()
    switch = Switch(shift.control.claims, "report")
    job_id = await shift.submit("_saves" if mode == "loop" else "_saves_in_a_thread", grace="1s")
    await switch.tried.wait()

    await shift.client.operations.cancel(job_id, actor="ann", reason="enough")
    job = await shift.settled(job_id)

    assert job.status == "cancelled"
    assert not engine.left_behind
    assert shift.retired == []


@pytest.mark.parametrize("mode", ["loop", "thread"])
async def test_its_run_timeout_ends_the_wait(shift: Shift, mode: Any) -> None:
    shift.act(_saves if mode == "loop" else _saves_in_a_thread, mode)
    engine = await shift.begin()
    switch = Switch(shift.control.claims, "report")
    name = "_saves" if mode == "loop" else "_saves_in_a_thread"
    job_id = await shift.submit(name, timeout="30s", grace="1s", retries=0)
    await switch.tried.wait()
    shift.clock.advance(30.5)

    job = await shift.settled(job_id)

    assert job.error is not None
    assert job.error.type == "RunTimeout"
    assert not engine.left_behind


async def test_a_drain_gives_a_waiting_job_back_at_no_cost(shift: Shift) -> None:
    shift.act(_saves_in_a_thread, "thread")
    engine = await shift.begin()
    switch = Switch(shift.control.claims, "report")
    job_id = await shift.submit("_saves_in_a_thread", retries=0)
    await switch.tried.wait()

    engine.drain(0)
    await engine.stopped.wait()

    job = await shift.client.jobs.get(job_id)
    assert (job.status, job.releases, job.failures, job.crashes) == ("pending", 1, 0, 0)
    assert not engine.left_behind


async def test_a_job_that_waits_for_the_store_has_not_stalled(shift: Shift) -> None:
    shift.act(_saves)
    await shift.begin()
    switch = Switch(shift.control.claims, "report")
    job_id = await shift.submit("_saves", stall_timeout="60s", timeout="off", retries=0)
    await switch.tried.wait()
    for _ in range(3):
        shift.clock.advance(40)
        switch.tried.clear()
        await switch.tried.wait()
    switch.on()

    job = await shift.settled(job_id)

    assert (job.status, job.failures) == ("succeeded", 0)
