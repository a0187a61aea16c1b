"""The program of a manager: opens the store, connects to the bus, and stops on a signal.

`python -m mainstay.cluster.manager_program` reads its configuration from standard input, because the addresses in it
may contain passwords, and prints a line when it is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from ..errors import MainstayError
from ..parent import die_with_parent
from ..stores import open_store, shown_url
from ..worker import logs
from .address import parse_address
from .certs import identities
from .liveness_settings import LivenessSettings
from .manager import Manager, ManagerOptions

log = logging.getLogger("mainstay.cluster")


class ManagerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the program of a manager runs."""

    url: str
    """of the cluster"""
    store: str
    """URL of the store"""
    name: str
    presence: str = ""
    """URL of the bus with the credentials of its system account, which reports connections; empty: silence only"""
    certs: str = ""
    """the folder of the certificates, whose nodes may claim from the queues that those name; empty: from all"""
    state: str = ""
    """the folder of the journal"""
    parent: int = 0
    """the process it dies with; 0: none"""
    log_level: str = "info"
    json_logs: bool = False


async def run_manager(
    config: ManagerConfig,
    *,
    ready: Callable[[], None] = lambda: None,
    beside: Callable[[Manager], AbstractAsyncContextManager[object]] = lambda _: contextlib.nullcontext(),
) -> int:
    """Run a manager until SIGTERM or SIGINT; the exit code. `ready` is called when it answers. `beside` runs in its
    process as long as it does."""
    address = parse_address(config.url)
    stopping = asyncio.Event()
    with _signals(stopping):
        async with contextlib.AsyncExitStack() as stack:
            store = await open_store(config.store)
            stack.push_async_callback(store.close)
            bus = await address.connect("manager", config.name, watch=config.presence or None)
            stack.push_async_callback(bus.close)
            options = ManagerOptions(
                name=config.name, cluster=address.cluster, environment=address.environment, state=config.state
            )
            manager = Manager(
                store,
                bus,
                options,
                allowed_queues=_queues_of(config.certs),
                liveness=LivenessSettings.from_env(os.environ),
            )
            stack.push_async_callback(manager.stop)
            await manager.start()
            await stack.enter_async_context(beside(manager))
            log.info("manager %s is up cluster=%s store=%s", config.name, address.cluster, shown_url(config.store))
            ready()
            await stopping.wait()
            log.info("manager %s stops", config.name)
    return 0


def _queues_of(folder: str) -> Callable[[str], Sequence[str] | None]:
    """The queues of each node, by its certificate; None: all."""
    if not folder:
        return lambda _: None
    nodes = {each.name: each.queues for each in identities(Path(folder)) if each.role == "node"}
    return lambda name: nodes.get(name) or None


@contextlib.contextmanager
def _signals(stopping: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stopping.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def main() -> int:
    """Read the configuration and run."""
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=ManagerConfig)
    if config.parent:
        die_with_parent(config.parent)
    logs.configure(config.log_level, as_json=config.json_logs)
    try:
        return asyncio.run(run_manager(config, ready=lambda: print("ready", flush=True)))  # noqa: T201 - for its parent
    except MainstayError as error:
        log.error("cannot start: %s", error)
        return 2


if __name__ == "__main__":
    sys.exit(main())
