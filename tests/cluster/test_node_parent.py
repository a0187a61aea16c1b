"""The parent of a node's worker: what it does with signals and with a worker that cannot start."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from mainstay.bus import Bus, MemoryBusNetwork
from mainstay.cluster import node_parent
from mainstay.cluster.member_messages import MemberEnvelope, NodeEnd
from mainstay.cluster.node_config import NodeConfig
from mainstay.cluster.node_parent import NodeParent
from mainstay.worker import UNFIT, WorkerOptions

pytestmark = pytest.mark.slow

#: nothing listens there
URL = "nats://node:secret@127.0.0.1:9/test"


def config() -> NodeConfig:
    options = WorkerOptions(target="x:app", node="n1", name="n1", joined=True)
    return NodeConfig(url=URL, options=options, incarnation="", parent=os.getpid())


def worker(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(node_parent, "_WORKER", (sys.executable, "-c", code))
    monkeypatch.setattr(node_parent, "_REPORT_S", 0.05)
    monkeypatch.setattr(node_parent, "_FIRST_WAIT_S", 0.05)


async def test_a_signal_while_the_worker_is_being_started_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    worker(monkeypatch, "import time; time.sleep(30)")
    spawn = asyncio.create_subprocess_exec
    begun = []

    async def interrupted(*args: object, **more: object) -> asyncio.subprocess.Process:
        process = await spawn(*args, **more)  # type: ignore[arg-type]
        begun.append(process)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)  # the handler runs before the parent knows the process
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", interrupted)
    async with asyncio.timeout(20):
        code = await NodeParent(config()).run()

    assert code == 1
    assert [process.returncode for process in begun] == [-signal.SIGTERM]


async def test_a_worker_that_cannot_start_is_not_started_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    worker(monkeypatch, f"import sys; open({str(starts)!r}, 'a').write('x'); sys.exit({UNFIT})")
    async with asyncio.timeout(20):
        assert await NodeParent(config()).run() == UNFIT
    assert starts.read_text() == "x"


async def test_a_worker_that_crashes_is_started_again_as_another_incarnation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    code = f"""
import json, sys
given = json.load(sys.stdin)
path = {str(starts)!r}
open(path, "a").write(given["incarnation"] + "\\n")
sys.exit(0 if len(open(path).read().split()) == 3 else 7)
"""
    worker(monkeypatch, code)
    async with asyncio.timeout(30):
        assert await NodeParent(config()).run() == 0
    incarnations = starts.read_text().split()
    assert len(set(incarnations)) == 3


async def test_the_end_of_a_worker_is_reported_to_another_manager_if_the_first_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_parent, "_REPORT_PAUSE_S", 0.0)
    network = MemoryBusNetwork()
    frozen = await network.client("manager.m1").subscribe("control.ended.*", group="managers")
    alive = network.client("manager.m2")
    reports = await alive.subscribe("control.ended.*", group="managers")
    connecting = asyncio.create_task(_value(network.client("node.n1")))
    reporting = asyncio.create_task(NodeParent(config())._report(connecting, "abc", 7))

    async with asyncio.timeout(20):
        message = await anext(reports)
    assert message.reply is not None
    await alive.publish(message.reply, b"")
    await reporting

    assert frozen.waiting >= 1
    report = msgspec.msgpack.decode(message.body, type=MemberEnvelope)
    assert msgspec.msgpack.decode(report.a, type=NodeEnd) == NodeEnd(
        incarnation="abc", how="its worker exited with code 7"
    )


async def _value(bus: Bus) -> Bus:
    return bus
