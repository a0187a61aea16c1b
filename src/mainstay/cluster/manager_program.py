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
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from ..bundles import BundleLimits
from ..bus import Bus
from ..bus.nats import NatsBus
from ..clock import SystemClock
from ..errors import BusError, InvalidInput, MainstayError
from ..event_loop import new_event_loop
from ..outputs import Blobs, open_blobs
from ..parent import die_with_parent
from ..stores import open_store, shown_url
from ..worker import logs
from .address import ClusterAddress, parse_address
from .cluster_service import ClusterClient
from .cluster_settings import ClusterSettings
from .engine_check import check_joined, findings
from .manager import Manager, ManagerOptions
from .node_queues import NodeQueues, certs_folder
from .own_certificate import expiry_warning

log = logging.getLogger("mainstay.cluster")

#: how often a manager looks at the bus and the certificates
_LOOK_S = 60.0
#: how long the notice of a connection may take on a busy machine
_NOTICE_S = 10.0


class ManagerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the program of a manager runs."""

    url: str
    """of the cluster"""
    store: str
    """URL of the store"""
    name: str
    blobs: str = ""
    """URL of the storage of bundles, the same for all managers; empty: the cluster keeps none"""
    bundle_limits: BundleLimits = BundleLimits()
    certs: str = ""
    """the folder of the certificates of nodes, which may claim from the queues that those name; empty: that of its own
    certificate, and without TLS none: every node may claim from all queues"""
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
    stopping = asyncio.Event()
    started = asyncio.Event()

    def up() -> None:
        started.set()
        ready()

    with _signals(stopping):
        serving = asyncio.create_task(_serve(config, stopping, up, beside), name="mainstay manager")
        asked = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait([serving, asked], return_when=asyncio.FIRST_COMPLETED)
            if not started.is_set():
                serving.cancel()  # it waits for its store or for the bus, which may never come
            await asyncio.wait([serving])
        finally:
            asked.cancel()
            serving.cancel()
    if not serving.cancelled():
        serving.result()
    return 0


async def _serve(
    config: ManagerConfig,
    stopping: asyncio.Event,
    ready: Callable[[], None],
    beside: Callable[[Manager], AbstractAsyncContextManager[object]],
) -> None:
    address = parse_address(config.url)
    settings = ClusterSettings.from_env(os.environ)
    name = address.name("manager", config.name)
    queues = NodeQueues(certs_folder(address, config.certs))
    async with contextlib.AsyncExitStack() as stack:
        store = await open_store(config.store)
        stack.push_async_callback(store.close)
        blobs = await _open_blobs(config.blobs, stack)
        bus = await address.connect("manager", name, join=settings.join)
        stack.push_async_callback(bus.close)
        check_joined(version=bus.server_version, max_payload=bus.max_payload)
        await check_neighbours(bus, name, address)
        data_bus = await address.connect("manager", name, beside="data", join=settings.join)
        stack.push_async_callback(data_bus.close)
        options = ManagerOptions(
            name=name, cluster=address.cluster, environment=address.environment, state=config.state
        )
        manager = Manager(
            store,
            bus,
            options,
            allowed_queues=queues.of if address.identity is not None or config.certs else lambda _: None,
            blobs=blobs,
            bundle_limits=config.bundle_limits,
            liveness=settings.liveness,
            data_bus=data_bus,
        )
        stack.push_async_callback(manager.stop)
        await manager.start()
        watching = asyncio.create_task(
            _watch_surroundings(manager, bus, address, settings, queues), name="mainstay engine check"
        )
        stack.callback(watching.cancel)
        await stack.enter_async_context(beside(manager))
        log.info("manager %s is up cluster=%s store=%s", name, address.cluster, shown_url(config.store))
        ready()
        await stopping.wait()
        log.info("manager %s stops", name)


async def _open_blobs(url: str, stack: contextlib.AsyncExitStack) -> Blobs | None:
    if not url:
        return None
    if url.startswith("memory:"):
        raise InvalidInput("blobs", "memory is not shared by managers; use file:///srv/blobs or s3://bucket/prefix")
    blobs = await open_blobs(url)
    stack.push_async_callback(blobs.close)
    return blobs


async def check_neighbours(bus: Bus, name: str, address: ClusterAddress) -> None:
    """Refuse to join managers of another cluster or of a version that does not work with this one."""
    # it asks once: the first manager of a cluster has no neighbours
    client = ClusterClient(
        bus, name=name, cluster=address.cluster, environment=address.environment, role="manager", tries=1
    )
    with contextlib.suppress(BusError):  # it is the first manager, or the others do not answer now
        await client.journal(most=1)


async def _watch_surroundings(
    manager: Manager, bus: NatsBus, address: ClusterAddress, settings: ClusterSettings, queues: NodeQueues
) -> None:
    """Tell operators what they have to change about the bus and the certificates."""
    clock = SystemClock()
    while True:
        try:
            found = findings(
                await bus.engines(),
                presence=await bus.shows_presence(_NOTICE_S),
                denied=bus.denied,
                away_s=settings.liveness.away_s,
            )
        except BusError:
            found = []  # it is away, which shows in another way
        paths = [Path(address.files["cert"])] if address.files else []
        for path in [*paths, *queues.files()]:
            with contextlib.suppress(OSError, MainstayError):
                if warning := expiry_warning(path, clock=clock):
                    found.append(warning)
        for text in found:
            if text not in manager.findings:
                log.warning("%s", text)
        manager.findings = found
        await asyncio.sleep(_LOOK_S)


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
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(run_manager(config, ready=lambda: print("ready", flush=True)))  # noqa: T201 - for its parent
    except MainstayError as error:
        log.error("cannot start: %s", error)
        return 2


if __name__ == "__main__":
    sys.exit(main())
