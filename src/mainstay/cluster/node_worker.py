"""The worker of a node: the supervisor of engines whose store is behind a manager, and the node's heartbeat.

`mainstay node join` starts it as a child process and reports its end: `python -m mainstay.cluster.node_worker`, with
the configuration on standard input, because the address of the cluster may contain a password.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys

import msgspec

from ..bus import Bus, BusMessage
from ..errors import BusError
from ..parent import die_with_parent
from ..stores.remote import MAINSTAY_VERSION
from ..worker import NODE_STORE, Supervisor, WorkerOptions, available, logs
from .address import parse_address
from .machine_load import MachineLoad
from .node_output import NodeOutput
from .status import NodeBeat

log = logging.getLogger("mainstay.cluster")

BEAT_S = 2.0
#: ids of running jobs in one beat
_RUNNING_SHOWN = 100


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the worker of a node runs."""

    url: str
    """of the cluster"""
    options: WorkerOptions
    incarnation: str
    """drawn at each start"""
    parent: int
    """the process it dies with"""
    cores: int = 0
    """0: all processors of the machine"""
    digest: str = ""
    """of the app"""


class NodeHeart:
    """Publishes the beats of a node while its supervisor's loop runs: a frozen supervisor is silent."""

    def __init__(self, bus: Bus, config: NodeConfig, supervisor: Supervisor, *, every_s: float = BEAT_S) -> None:
        self._bus = bus
        self._config = config
        self._supervisor = supervisor
        self._every_s = every_s
        self._number = 0
        self._load = MachineLoad()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._number += 1
            try:
                await self._bus.publish(
                    f"control.beat.{self._config.options.node}", msgspec.msgpack.encode(self.beat())
                )
            except BusError as error:
                log.warning("heartbeat not sent: %s", error)
            await asyncio.sleep(self._every_s)

    def beat(self) -> NodeBeat:
        """What the node reports now."""
        options = self._config.options
        running = self._supervisor.running
        cpu, memory = self._load.read()
        return NodeBeat(
            node=options.node,
            number=self._number,
            incarnation=self._config.incarnation,
            sessions=tuple(self._supervisor.sessions),
            host=socket.gethostname(),
            pid=os.getpid(),
            version=MAINSTAY_VERSION,
            target=options.target,
            digest=self._config.digest,
            labels=options.labels,
            cores=self._config.cores or available(),
            running=tuple(running[:_RUNNING_SHOWN]),
            running_count=len(running),
            cpu=cpu,
            memory=memory,
            draining=self._supervisor.is_stopping,
        )


async def run_node(config: NodeConfig) -> int:
    """Run the worker of a node until it is asked to stop; the exit code."""
    address = parse_address(config.url)
    name = config.options.node
    os.environ[NODE_STORE] = address.store_url("node", name)
    bus = await address.connect("node", name)
    try:
        supervisor = Supervisor(config.options)
        output = NodeOutput(bus, name, config.options.output)
        tasks = [
            asyncio.create_task(NodeHeart(bus, config, supervisor).run(), name="mainstay node heart"),
            asyncio.create_task(_answer(bus, name, supervisor, output), name="mainstay node requests"),
            asyncio.create_task(output.run(), name="mainstay node output"),
        ]
        try:
            return await supervisor.run()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    finally:
        await bus.close()


async def _answer(bus: Bus, name: str, supervisor: Supervisor, output: NodeOutput) -> None:
    """Answer managers: a ping proves that this loop runs; a drain stops the worker."""
    async with await bus.subscribe(f"control.node.{name}.>") as requests:
        async for message in requests:
            try:
                answer = await _answer_of(message, supervisor, output)
            except Exception as error:  # noqa: BLE001 - a node that answers no ping is taken for dead
                log.warning("cannot answer a request: subject=%s error=%s", message.subject, error)
                answer = {"error": f"the request failed: {type(error).__name__}"}
            if message.reply is not None:
                with contextlib.suppress(BusError):  # the manager asks again
                    await bus.publish(message.reply, msgspec.msgpack.encode(answer))


async def _answer_of(message: BusMessage, supervisor: Supervisor, output: NodeOutput) -> object:
    method = message.subject.rpartition(".")[2]
    if method == "output":
        return await output.answer(message.body)
    if method == "drain":
        by = msgspec.msgpack.decode(message.body).get("by", "an operator")
        supervisor.drain(str(by))
    elif method != "ping":
        return {"error": f"a node has no method {method}"}
    return {"ok": True}


def main() -> int:
    """Read the configuration and run."""
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=NodeConfig)
    die_with_parent(config.parent)
    logs.configure(config.options.log_level, as_json=config.options.json_logs)
    return asyncio.run(run_node(config))


if __name__ == "__main__":
    sys.exit(main())
