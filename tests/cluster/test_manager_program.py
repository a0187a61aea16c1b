"""The program of a manager, and what the bus is told about the connections of a node."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from mainstay.clock import SystemClock
from mainstay.cluster.manager_program import ManagerConfig, run_manager
from mainstay.lifecycle import Chain
from mainstay.stores.remote import open_remote, url


async def test_a_manager_that_waits_for_the_bus_stops_on_a_signal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = ManagerConfig(
        url="nats://manager:4nKx7PzQ2vLw9RtY@127.0.0.1:9/test", store=f"sqlite:///{tmp_path / 'jobs.db'}", name="m1"
    )
    with caplog.at_level(logging.WARNING):
        running = asyncio.create_task(run_manager(config))
        async with asyncio.timeout(20):
            while "bus away" not in caplog.text and not running.done():
                await asyncio.sleep(0.01)
            assert not running.done()  # it handles the signal, which would end this process otherwise
            os.kill(os.getpid(), signal.SIGTERM)
            assert await running == 0


async def test_a_store_connection_of_a_node_does_not_bear_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []

    async def refused(*_: object, name: str, **more: object) -> object:
        names.append((name, more["inbox"]))
        raise ConnectionRefusedError

    monkeypatch.setattr(url, "connect_nats", refused)
    options = {"cluster": "test", "role": "node", "name": "n1"}
    with pytest.raises(ConnectionRefusedError):
        await open_remote("remote+nats://127.0.0.1:9/", clock=SystemClock(), chain=Chain(None), options=options)

    assert names == [("node.n1.store", "_INBOX.node.n1")]
