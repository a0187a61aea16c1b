"""The worker of a node: the supervisor of engines whose store is behind a manager, and the node's heartbeat.

`mainstay node join` starts it as a child process and reports its end: `python -m mainstay.cluster.node_worker`, with
the configuration on standard input, because the address of the cluster may contain a password.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys

import msgspec

from ..bundles import code_environment
from ..bus import Bus, BusMessage
from ..errors import BusError, MainstayError
from ..parent import die_with_parent
from ..worker import FORCED, NODE_STORE, UNFIT, Supervisor, available, logs
from .address import parse_address
from .cluster_settings import ClusterSettings
from .node_config import FORCED_END, NodeConfig
from .node_heart import NodeHeart
from .node_output import NodeOutput

log = logging.getLogger("mainstay.cluster")


async def run_node(config: NodeConfig) -> int:
    """Run the worker of a node until it is asked to stop; the exit code."""
    address = parse_address(config.url)
    name = config.options.node
    settings = ClusterSettings.from_env(os.environ)
    os.environ[NODE_STORE] = address.store_url("node", name)
    if config.code:
        os.environ.update(code_environment(config.code))
    bus = await address.connect("node", name, join=settings.join)
    try:
        supervisor = Supervisor(msgspec.structs.replace(config.options, cores=config.cores or available()))
        heart = NodeHeart(bus, config, supervisor, settings=settings.liveness)
        return await run_supervised(supervisor, heart, bus, config)
    finally:
        await bus.close()


async def run_supervised(supervisor: Supervisor, heart: NodeHeart, bus: Bus, config: NodeConfig) -> int:
    """Run the supervisor with the heart of its node, and answer managers; its exit code."""
    output = NodeOutput(bus, config.options.node, config.options.output)
    tasks = [
        asyncio.create_task(heart.run(), name="mainstay node heart"),
        asyncio.create_task(_answer(bus, config, supervisor, output), name="mainstay node requests"),
        asyncio.create_task(output.run(), name="mainstay node output"),
    ]
    try:
        return await supervisor.run()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _answer(bus: Bus, config: NodeConfig, supervisor: Supervisor, output: NodeOutput) -> None:
    """Answer managers: a ping proves that this loop runs; a drain stops the worker."""
    async with await bus.subscribe(f"control.node.{config.options.node}.>") as requests:
        async for message in requests:
            try:
                answer = await _answer_of(message, config, supervisor, output)
            except Exception as error:  # noqa: BLE001 - a node that answers no ping is taken for dead
                log.warning("cannot answer a request: subject=%s error=%s", message.subject, error)
                answer = {"error": f"the request failed: {type(error).__name__}"}
            if message.reply is not None:
                with contextlib.suppress(BusError):  # the manager asks again
                    await bus.publish(message.reply, msgspec.msgpack.encode(answer))


async def _answer_of(message: BusMessage, config: NodeConfig, supervisor: Supervisor, output: NodeOutput) -> object:
    method = message.subject.rpartition(".")[2]
    if method == "output":
        return await output.answer(message.body)
    if method == "drain":
        by = msgspec.msgpack.decode(message.body).get("by", "an operator")
        supervisor.drain(str(by))
    elif method != "ping":
        return {"error": f"a node has no method {method}"}
    return {"ok": {"incarnation": config.incarnation}}


def main() -> int:
    """Read the configuration and run."""
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=NodeConfig)
    die_with_parent(config.parent)
    logs.configure(config.options.log_level, as_json=config.options.json_logs)
    try:
        code = asyncio.run(run_node(config))
    except MainstayError as error:
        log.error("cannot start: %s", error)
        return UNFIT
    return FORCED_END if code == FORCED else code


if __name__ == "__main__":
    sys.exit(main())
