"""A job that was lost with its workers time and again runs with nothing beside it in its engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from mainstay.control.rules.blame import ALONE_LOSSES
from mainstay.testing import MemoryStore, VirtualClock
from mainstay.worker.solo_turn import SoloTurn
from tests.worker.test_engine import Shift


@pytest.fixture
async def shift() -> AsyncIterator[Shift]:
    clock = VirtualClock()
    shift = Shift(MemoryStore(clock), clock)
    yield shift
    await shift.end()


class Hall:
    """Tasks that say when they begin, and end when they are let go."""

    def __init__(self, shift: Shift) -> None:
        self.begun: list[str] = []
        self.gates = {name: asyncio.Event() for name in ("suspect", "other", "another")}
        self.moved = asyncio.Event()
        for name in self.gates:
            shift.act(self._task(name))

    def _task(self, name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def run() -> None:
            self.begun.append(name)
            self.moved.set()
            await self.gates[name].wait()

        run.__name__ = name
        return run

    async def until_begun(self, *names: str) -> None:
        while not set(names) <= set(self.begun):
            self.moved.clear()
            await self.moved.wait()


async def _suspect(shift: Shift) -> str:
    """A job that was lost with its worker as often as it takes."""
    job_id = await shift.submit("suspect", priority=50)
    for _ in range(ALONE_LOSSES):
        session = await shift.client.claims.open_session()
        [job] = await shift.client.claims.claim(["default"], session.id, 1)
        await shift.client.attempts.release([job], reason="its worker died", lost=True)
        await shift.client.claims.close_session(session.id)
    return job_id


async def test_it_waits_for_the_others_to_end_and_the_next_wait_for_it(shift: Shift) -> None:
    hall = Hall(shift)
    await shift.begin(concurrency=4)
    other = await shift.submit("other")
    await hall.until_begun("other")
    suspect = await _suspect(shift)
    another = await shift.submit("another")
    while (await shift.client.jobs.get(suspect)).status != "running":
        await asyncio.sleep(0.001)
    assert hall.begun == ["other"], "it has been claimed, and waits"

    hall.gates["other"].set()
    await shift.settled(other)
    await hall.until_begun("suspect")
    await shift.engine.control.sweeper.sweep()
    assert hall.begun == ["other", "suspect"]
    assert (await shift.client.jobs.get(another)).started_ms is None

    hall.gates["suspect"].set()
    await hall.until_begun("another")
    hall.gates["another"].set()

    jobs = [await shift.settled(job_id) for job_id in (suspect, another)]
    assert [job.status for job in jobs] == ["succeeded", "succeeded"]


async def test_a_cancel_reaches_it_while_it_waits(shift: Shift) -> None:
    hall = Hall(shift)
    await shift.begin(concurrency=4)
    await shift.submit("other")
    await hall.until_begun("other")
    suspect = await _suspect(shift)
    while (await shift.client.jobs.get(suspect)).status != "running":
        await asyncio.sleep(0.001)

    await shift.client.operations.cancel(suspect, actor="ann")
    job = await shift.settled(suspect)
    another = await shift.submit("another")
    await hall.until_begun("another")

    assert job.status == "cancelled"
    assert "suspect" not in hall.begun
    for gate in hall.gates.values():
        gate.set()
    assert (await shift.settled(another)).status == "succeeded"


async def test_one_job_runs_alone_in_a_worker_at_a_time(shift: Shift) -> None:
    """The other is put off, and runs when the lock is free."""
    lock = SoloTurn.create()
    hall = Hall(shift)
    shift.solo_turn = SoloTurn(os.dup(lock.fd))
    engine = await shift.begin(concurrency=4, start=False)
    with _held_elsewhere(lock):
        engine.start()
        suspect = await _suspect(shift)
        while (await shift.client.jobs.get(suspect)).status != "scheduled":
            await asyncio.sleep(0.001)
        assert hall.begun == []
    shift.clock.advance(6)
    hall.gates["suspect"].set()

    job = await shift.settled(suspect)

    assert (job.status, job.crashes) == ("succeeded", 0)
    assert shift.solo_turn.take(), "it let go of the lock"
    shift.solo_turn.close()
    lock.close()


@contextlib.contextmanager
def _held_elsewhere(lock: SoloTurn) -> Iterator[None]:
    """Another process holds the lock: record locks exclude processes, not files."""
    script = f"import fcntl, sys; fcntl.lockf({lock.fd}, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script], pass_fds=[lock.fd], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.communicate()
