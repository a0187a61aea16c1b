"""An engine's process: what it hears from its supervisor, whatever the store and its jobs do meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstay.control import Control, overview
from mainstay.errors import InvalidInput, StoreLocked
from mainstay.stores import open_store
from mainstay.worker.engine_main import EngineHost, children_at_most
from mainstay.worker.messages import (
    Drain,
    EngineConfig,
    FromEngine,
    Hello,
    Pulsed,
    StartClaiming,
    ToEngine,
    Unfit,
    line,
)
from mainstay.worker.recorder import Recorder
from mainstay.worker.worker_options import WorkerOptions
from tests.worker.crews import ENGINE, crew_on
from tests.worker.program import Stage


class Supervised:
    """An engine's process on this loop, and the other end of its link."""

    def __init__(self, stage: Stage, running: asyncio.Task[int], link: asyncio.StreamWriter) -> None:
        self.stage = stage
        self.running = running
        self.hellos: asyncio.Queue[Hello] = asyncio.Queue()
        self.unfit: asyncio.Queue[str] = asyncio.Queue()
        self._link = link

    def say(self, *messages: ToEngine) -> None:
        for message in messages:
            self._link.write(line(message))

    def say_raw(self, text: bytes) -> None:
        self._link.write(text)

    def hang_up(self) -> None:
        self._link.close()

    async def control(self) -> Control:
        return await self.stage.open()

    async def hear(self, reader: asyncio.StreamReader) -> None:
        while text := await reader.readline():
            message = msgspec.json.decode(text, type=FromEngine)
            if isinstance(message, Hello):
                self.hellos.put_nowait(message)
            elif isinstance(message, Unfit):
                self.unfit.put_nowait(message.reason)


@contextlib.asynccontextmanager
async def supervised(stage: Stage, **options: Any) -> AsyncIterator[Supervised]:
    ours, theirs = socket.socketpair()
    recorder = Recorder.create(64)
    config = EngineConfig(
        options=WorkerOptions(target="x:y", name="w", **options),
        supervisor_pid=os.getpid(),
        link_fd=theirs.detach(),
        recorder_fd=os.dup(recorder.fd),
    )
    running = asyncio.create_task(EngineHost(config, stage).run())
    reader, writer = await asyncio.open_connection(sock=ours)
    made = Supervised(stage, running, writer)
    hearing = asyncio.create_task(made.hear(reader))
    try:
        yield made
    finally:
        writer.close()
        await asyncio.wait([running])
        hearing.cancel()
        recorder.close()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(f"sqlite:///{tmp_path / 'jobs.db'}")


class Away:
    """No session can be opened, until the store is back."""

    def __init__(self, control: Control) -> None:
        self._store: Any = control.store
        self._real = control.store.open_session
        self.tries: asyncio.Queue[None] = asyncio.Queue()
        self._store.open_session = self._fails  # type: ignore[method-assign]

    async def _fails(self, *_: object, **__: object) -> None:
        self.tries.put_nowait(None)
        raise StoreLocked("somebody keeps it locked")

    def back(self) -> None:
        self._store.open_session = self._real


async def test_a_session_lost_while_the_store_is_away_is_renewed_when_it_is_back(stage: Stage) -> None:
    async with supervised(stage) as engine:
        lost = (await engine.hellos.get()).session
        engine.say(StartClaiming())
        away = Away(await engine.control())
        engine.say(Pulsed(session=lost, known=False))
        for _ in range(2):
            await away.tries.get()

        away.back()

        assert (await engine.hellos.get()).session != lost
        engine.say(Drain(0.0))
        assert await engine.running == 0


async def test_the_leads_of_a_lost_session_pass_to_the_next_one(stage: Stage) -> None:
    async with supervised(stage) as engine:
        lost = (await engine.hellos.get()).session
        engine.say(StartClaiming())
        store = (await engine.control()).store

        async def leads(session: str) -> bool:
            return session in [each.session.id for each in await overview.sessions(store) if each.leads]

        while not await leads(lost):
            await asyncio.sleep(0.01)
        await store.close_session(lost)
        engine.say(Pulsed(session=lost, known=False))
        renewed = (await engine.hellos.get()).session
        while not await leads(renewed):
            await asyncio.sleep(0.01)

        engine.say(Drain(0.0))
        assert await engine.running == 0


async def test_a_drain_is_heard_while_a_session_is_being_renewed(stage: Stage) -> None:
    async with supervised(stage) as engine:
        lost = (await engine.hellos.get()).session
        engine.say(StartClaiming())
        away = Away(await engine.control())
        engine.say(Pulsed(session=lost, known=False))
        await away.tries.get()

        engine.say(Drain(0.0))

        assert await engine.running == 0


async def test_what_is_not_understood_is_no_reason_to_stop_listening(stage: Stage) -> None:
    async with supervised(stage) as engine:
        greeting = await engine.hellos.get()
        engine.say_raw(b'{"type":"Dance"}\nnot json\n')
        # more jobs to cancel than a line usually holds
        engine.say(StartClaiming(), Pulsed(session=greeting.session, known=True, cancelling=("x" * 36,) * 5_000))

        engine.say(Drain(0.0))

        assert await engine.running == 0


async def test_an_engine_that_cannot_hear_any_more_drains(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with supervised(stage) as engine:
        await engine.hellos.get()

        def deaf(*_: object) -> None:
            raise RuntimeError("deaf")

        monkeypatch.setattr(EngineHost, "_receive", deaf)
        engine.say(StartClaiming())

        assert await engine.running == 0
    assert "lost the link to its supervisor" in caplog.text


async def test_an_engine_whose_supervisor_is_gone_ends(stage: Stage) -> None:
    async with supervised(stage) as engine:
        await engine.hellos.get()
        engine.say(StartClaiming())

        engine.hang_up()

        assert await engine.running == 0


async def test_an_engine_whose_supervisor_is_gone_leaves_its_jobs_to_the_sweep_which_counts_the_loss(
    stage: Stage,
) -> None:
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    stage.act(waits, "loop")
    async with supervised(stage) as engine:
        session = (await engine.hellos.get()).session
        job_id = (await (await engine.control()).jobs.submit("waits", {})).id
        engine.say(StartClaiming())
        await begun.wait()

        engine.hang_up()

        assert await engine.running == 0
    control = Control(await open_store(stage.store_url))
    try:
        left = await control.jobs.get(job_id)
        assert (left.status, left.session, left.releases) == ("running", session, 0)
        await control.sweeper.sweep()
        found = await control.jobs.get(job_id)
        assert (found.status, found.losses, found.crashes) == ("pending", 1, 0)
    finally:
        await control.store.close()


async def test_a_program_is_prepared_once_its_store_is_open(stage: Stage) -> None:
    prepared: list[Control] = []

    async def prepare(control: Control) -> None:
        if not prepared:
            prepared.append(control)
            raise StoreLocked("somebody keeps it locked")
        prepared.append(control)

    stage.prepare = prepare  # type: ignore[attr-defined,method-assign,unused-ignore]
    async with supervised(stage) as engine:
        await engine.hellos.get()
        assert prepared == [await engine.control()] * 2


def test_children_are_no_more_than_there_are_processors_and_two_at_least() -> None:
    assert children_at_most(1, processors=8) == 1
    assert children_at_most(100, processors=8) == 8
    assert children_at_most(100, processors=1) == 2


@pytest.mark.slow
async def test_an_exit_in_a_task_that_a_job_started_is_a_crash_of_what_ran_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.db"
    monkeypatch.setenv("CREW_STORE", f"sqlite:///{path}")
    async with crew_on(path, target="tests.worker.crew_program:stage", command=ENGINE) as crew:
        (beside,) = await crew.submit("takes", payload={"seconds": 2})
        await crew.until_started([beside])
        (guilty,) = await crew.submit("exits_in_a_task_of_its_own", payload={}, crash_budget=2, retries=0)

        job = await crew.control.jobs.wait(guilty, "90s")

        assert (job.status, job.crashes) == ("quarantined", 2)
        assert job.error is not None
        assert "exited with code 70" in job.error.message
        other = await crew.control.jobs.wait(beside, "90s")
        # the first time nobody could tell them apart; the second time the guilty ran on its own
        assert (other.status, other.crashes, other.failures, other.releases) == ("succeeded", 1, 0, 0)


async def test_a_worker_that_is_to_claim_what_managers_lead_cannot_start(stage: Stage) -> None:
    async with supervised(stage, queues=("mail", "@lead")) as engine:
        reason = await engine.unfit.get()

        assert reason == "queues: '@lead' is reserved, and no worker claims from it; name other queues"
        with pytest.raises(InvalidInput):
            await engine.running
