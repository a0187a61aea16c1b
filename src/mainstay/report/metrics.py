"""Metrics for Prometheus.

There are two sources. Events are counted where they happen, by the metered stores of each process
(`mainstay.stores.metrics`). The depth and age of the queues are read from the store at each scrape, by one collector.
Needs the extra `prometheus`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput, MainstayError
from ..lifecycle import JOB
from ..model import is_private
from ..stores import JobStore, Stats, open_store
from ..stores.metrics import COUNTED, VARIABLE, MeteredStore, StoreMetric, check_installed
from ..worker import Program
from .scratch import scratch_folder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = [
    "COUNTED",
    "GAUGES",
    "METRICS",
    "MeteredStore",
    "MetricsServer",
    "QueueCollector",
    "expose",
    "metrics_server",
]

log = logging.getLogger("mainstay.report")

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_TIMEOUT_S = 5.0

UP = StoreMetric("mainstay_store_up", "gauge", (), "1 if the store answered this scrape, else 0")
JOBS = StoreMetric("mainstay_queue_jobs", "gauge", ("queue", "status"), "jobs in each state")
AGE = StoreMetric(
    "mainstay_queue_oldest_ready_seconds",
    "gauge",
    ("queue",),
    "how long the oldest ready job has been due; 0 if no job waits",
)
SESSIONS = StoreMetric("mainstay_sessions", "gauge", (), "live sessions: engines, and other programs that run jobs")
ASIDE = StoreMetric(
    "mainstay_rows_aside", "gauge", (), "rows set aside because they cannot be read; see mainstay check"
)

LEADER = StoreMetric(
    "mainstay_leader", "gauge", (), "1 if a session runs schedules, retention and checks, else 0; 0 lasts for seconds"
)

_NEED_A_PERSON = tuple(state.name for state in JOB.states.values() if state.settled and not state.final)

#: gauges that are read from the store at each scrape
GAUGES = (UP, JOBS, AGE, SESSIONS, ASIDE, LEADER)
METRICS = (*COUNTED, *GAUGES)


class QueueCollector:
    """Reads a store at each scrape: that of an app, or one given by its URL. Register it in one process only.

    A scrape may come on any thread, also on one with a running loop; the collector reads the store in its own thread.
    """

    def __init__(self, source: Program | str | None = None) -> None:
        check_installed()
        self._source = source
        self._store: JobStore | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mainstay-metrics")

    def watch(self, source: Program | str) -> None:
        """Set the app or store, once it is known."""
        self._source = source

    def describe(self) -> Iterator[Any]:
        """The metrics, without reading the store."""
        return (_family(metric) for metric in GAUGES)

    def collect(self) -> Iterator[Any]:
        """The current values."""
        if self._source is None:
            return
        stats = self._read()
        up = _family(UP)
        up.add_metric((), 0 if stats is None else 1)
        yield up
        if stats is not None:
            yield from _families(stats)

    def close(self) -> None:
        """Close the store, if the collector has opened it."""
        self._source = None
        with contextlib.suppress(TimeoutError):  # a scrape hangs; the store is closed with the process
            self._thread.submit(lambda: asyncio.run(self._close())).result(_TIMEOUT_S)
        self._thread.shutdown(wait=False)

    def _read(self) -> Stats | None:
        reading = self._thread.submit(lambda: asyncio.run(self._stats()))
        try:
            return reading.result(_TIMEOUT_S)
        except TimeoutError:
            log.warning("the store did not answer a scrape within %gs", _TIMEOUT_S)
        except MainstayError as error:
            log.warning("the store could not be read for a scrape: %s", error)
        return None

    async def _stats(self) -> Stats:
        source = self._source
        if source is not None and not isinstance(source, str):
            return await (await source.open()).store.stats()
        if self._store is None:
            assert source is not None
            self._store = await open_store(source)
        return await self._store.stats()

    async def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()


def expose(app: Program, registry: CollectorRegistry | None = None) -> QueueCollector:
    """Add the queues of an app to a registry (by default the global one of prometheus_client), for a program with a
    `/metrics` of its own. With MAINSTAY_METRICS=on, the jobs that the program submits are counted as well."""
    collector = QueueCollector(app)
    from prometheus_client import REGISTRY  # noqa: PLC0415 - an extra

    (registry or REGISTRY).register(collector)
    return collector


class MetricsServer:
    """A running server of metrics. `watch` sets the store, once it is known."""

    def __init__(self, url: str, queues: QueueCollector) -> None:
        self.url = url
        self.watch = queues.watch


@contextlib.contextmanager
def metrics_server(address: str) -> Iterator[MetricsServer]:
    """Serve the metrics of this process and its child processes at http://ADDRESS/metrics.

    Child processes count into files of a folder that the environment names. They must be started within the block, and
    this process must not have counted before.
    """
    host, port = _host_and_port(address)
    check_installed()
    with _shared_counters() as folder:
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - reads the environment
        from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=folder)  # type: ignore[no-untyped-call]
        queues = QueueCollector()
        registry.register(queues)
        try:
            server, thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise InvalidInput("metrics", f"cannot listen on {address}: {error.strerror or error}") from None
        if _is_loopback(host):
            server.set_app(_local_only(server.get_app()))
        running = MetricsServer(_url(host, server.server_port), queues)
        log.info("serving metrics at %s", running.url)
        try:
            yield running
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
            queues.close()


def _local_only(app: Any) -> Any:
    """Refuses requests under a name that is not of this machine. A hostile page can let its own name resolve to
    127.0.0.1 (DNS rebinding) and would read the responses; but the browser still sends that name as the host."""

    def checked(environ: dict[str, Any], start_response: Any) -> Any:
        host = environ.get("HTTP_HOST", "")
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if _is_loopback(name):
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"metrics are for this machine only: use 127.0.0.1 or localhost\n"]

    return checked


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


@contextlib.contextmanager
def _shared_counters() -> Iterator[str]:
    """The folder for the counters of this process and its children. A folder that the environment names is used, and
    kept."""
    before = {name: os.environ.get(name) for name in (_FOLDER, VARIABLE)}
    with contextlib.ExitStack() as stack:
        folder = before[_FOLDER]
        if folder is None:
            folder = stack.enter_context(scratch_folder("mainstay-metrics-"))
        os.environ[_FOLDER] = folder
        os.environ[VARIABLE] = before[VARIABLE] or "on"
        try:
            yield folder
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _host_and_port(address: str) -> tuple[str, int]:
    """
    >>> _host_and_port("127.0.0.1:9464"), _host_and_port(":9464"), _host_and_port("[::1]:9464")
    (('127.0.0.1', 9464), ('127.0.0.1', 9464), ('::1', 9464))
    >>> _host_and_port("everywhere")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: metrics: 'everywhere' is not of the form host:port, like 127.0.0.1:9464
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise InvalidInput("metrics", f"{address!r} is not of the form host:port, like 127.0.0.1:9464")
    return host.strip("[]") or "127.0.0.1", int(port)


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def _families(stats: Stats) -> Iterator[Any]:
    jobs, age = _family(JOBS), _family(AGE)
    for queue, counted in sorted(stats.queues.items()):
        if is_private(queue):
            continue
        for status, n in sorted(exposed_counts(counted.counts).items()):
            jobs.add_metric((queue, status), n)
        oldest_ms = counted.oldest_ready_ms
        age.add_metric((queue,), 0 if oldest_ms is None else max(0, stats.at_ms - oldest_ms) / 1000)
    sessions, aside, leader = _family(SESSIONS), _family(ASIDE), _family(LEADER)
    sessions.add_metric((), stats.sessions)
    aside.add_metric((), stats.aside)
    leader.add_metric((), stats.leader is not None)
    yield from (jobs, age, sessions, aside, leader)


def exposed_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts of a queue, with zeros for the states in which jobs wait for a person. Prometheus sees growth only of
    a series that exists: without the zeros, the first failed jobs of a queue would not count."""
    return {**dict.fromkeys(_NEED_A_PERSON, 0), **counts}


def _family(metric: StoreMetric) -> Any:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - an extra

    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
