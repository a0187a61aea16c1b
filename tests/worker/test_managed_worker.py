"""A worker whose store is behind a manager: it sweeps nothing, leads nothing and stores no schedules."""

from __future__ import annotations

import asyncio
import random

import pytest

from mainstay import App
from mainstay.control import Control
from mainstay.errors import InvalidInput, MainstayError
from mainstay.model import Session
from mainstay.stores import StoreProxy, is_managed
from mainstay.testing import MemoryStore
from mainstay.worker import NODE_STORE, Leads, WorkerOptions
from mainstay.worker.heartbeat import SupervisorLoops
from mainstay.worker.program import load_for


class BehindManager(StoreProxy):
    managed = True

    async def overdue(self, limit: int = 100):
        raise AssertionError("a node sweeps nothing")

    async def lead(self, name: str, session: str, ttl_s: float):
        raise AssertionError("a node leads nothing")

    async def put_schedule(self, schedule):
        raise AssertionError("a node stores no schedules")


def test_only_a_store_that_says_so_is_managed() -> None:
    store = MemoryStore()
    assert is_managed(BehindManager(store))
    assert not is_managed(store)


async def test_it_lets_its_engines_claim_after_the_first_heartbeat_without_a_sweep() -> None:
    control = Control(BehindManager(MemoryStore()))
    loops = SupervisorLoops(control, list, rng=random.Random(1), on_drain=lambda by: None)
    beating = asyncio.create_task(loops.beat())
    try:
        await loops.sweep()
        assert loops.swept.is_set()
    finally:
        beating.cancel()


async def test_its_engines_compete_for_no_lead() -> None:
    control = Control(BehindManager(MemoryStore()))
    leads = Leads(App("memory:"), control)
    await leads.start(Session(id="s1", node="n1"))
    await asyncio.sleep(0)
    await leads.stop()


async def test_its_program_stores_no_schedules() -> None:
    app = App("memory:")

    @app.schedule("1h")
    @app.task(name="tidy")
    def tidy() -> None: ...

    await app.prepare(Control(BehindManager(MemoryStore())))


def test_its_program_uses_the_store_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NODE_STORE, "remote+nats://127.0.0.1/?name=n1")
    program = load_for(WorkerOptions(target="tests.node.node_program:app", name="n1", joined=True))
    assert isinstance(program, App)
    try:
        assert program.store_url == "remote+nats://127.0.0.1/?name=n1"
    finally:
        program.use_store("memory:")


def test_a_program_that_cannot_move_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NODE_STORE, "remote+nats://127.0.0.1/")
    with pytest.raises(InvalidInput, match="needs a mainstay.App"):
        load_for(WorkerOptions(target="tests.worker.crew_program:placing", name="n1", joined=True))


async def test_an_open_app_does_not_move() -> None:
    async with App("memory:") as app:
        with pytest.raises(MainstayError, match="open already"):
            app.use_store("sqlite:///other.db")
