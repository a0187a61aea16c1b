"""The demo's worker makes the calls a worker has to make."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainstay.control import Control
from mainstay.testing import MemoryStore

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """One with a store of its own."""
    monkeypatch.syspath_prepend(EXAMPLES)
    from demo_runner import Runner

    yield Runner(Control(MemoryStore()), "worker-1")
    for name in ("demo_runner", "demo_tasks"):
        sys.modules.pop(name, None)


async def test_a_worker_that_was_given_up_goes_on_under_a_new_session(runner: Any) -> None:
    await runner.open()
    given_up = runner.session
    await runner.control.close_session(given_up)
    submitted = await runner.control.submit("mail.send", {"takes": 0.0})

    claiming = asyncio.create_task(runner.claim_loop())
    try:
        job = await runner.control.wait(submitted.id, "10s")
    finally:
        claiming.cancel()

    assert job.status == "succeeded"
    assert runner.session != given_up
    assert [session.id for session in await runner.control.store.sessions()] == [runner.session]


async def test_two_loops_that_learn_of_it_at_once_open_one_session(runner: Any) -> None:
    await runner.open()
    given_up = runner.session
    await runner.control.close_session(given_up)

    await asyncio.gather(runner.begin_anew(given_up), runner.begin_anew(given_up))

    assert len(await runner.control.store.sessions()) == 1
