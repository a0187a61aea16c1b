"""Metrics for Prometheus: what is exposed, and how.

Two sources. What happens is counted where it happens, by the metered stores of each process
(`mainstay.stores.metrics`). What there is, the depth and age of the queues, is asked of the store when somebody
scrapes, by one collector for all. Needs the extra `prometheus`.
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

__all__ = ["COUNTED", "GAUGES", "METRICS", "MeteredStore", "QueueCollector", "Served", "expose", "serving"]

log = logging.getLogger("mainstay.report")

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_PATIENCE_S = 5.0

UP = StoreMetric("mainstay_store_up", "gauge", (), "1 if the store answered this scrape, else 0")
JOBS = StoreMetric("mainstay_queue_jobs", "gauge", ("queue", "status"), "jobs in each state")
AGE = StoreMetric(
    "mainstay_queue_oldest_ready_seconds",
    "gauge",
    ("queue",),
    "how long the job that has waited longest for a worker has been due; 0 if none waits",
)
SESSIONS = StoreMetric("mainstay_sessions", "gauge", (), "engines and other sessions that are alive")
ASIDE = StoreMetric(
    "mainstay_rows_aside", "gauge", (), "rows set aside because they cannot be read; see mainstay check"
)

LEADER = StoreMetric(
    "mainstay_leader", "gauge", (), "1 if a session runs schedules, retention and checks, else 0; 0 lasts for seconds"
)

_FOR_A_PERSON = tuple(state.name for state in JOB.states.values() if state.settled and not state.final)

#: what is asked of the store at each scrape
GAUGES = (UP, JOBS, AGE, SESSIONS, ASIDE, LEADER)
METRICS = (*COUNTED, *GAUGES)


class QueueCollector:
    """Asks a store at each scrape: of an app, or by URL. Register it in one process only.

    A scrape may come on any thread, one with a running loop included; the store is asked from a thread of the
    collector's own.
    """

    def __init__(self, source: Program | str | None = None) -> None:
        check_installed()
        self._source = source
        self._store: JobStore | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mainstay-metrics")

    def watch(self, source: Program | str) -> None:
        """Say what to ask, once it is known."""
        self._source = source

    def describe(self) -> Iterator[Any]:
        """What it will tell, without asking the store."""
        return (_family(metric) for metric in GAUGES)

    def collect(self) -> Iterator[Any]:
        """What there is now."""
        if self._source is None:
            return
        stats = self._asked()
        up = _family(UP)
        up.add_metric((), 0 if stats is None else 1)
        yield up
        if stats is not None:
            yield from _families(stats)

    def close(self) -> None:
        """Let go of the store, if it was opened here."""
        self._source = None
        with contextlib.suppress(TimeoutError):  # it hangs in a scrape; the store goes with the process
            self._thread.submit(lambda: asyncio.run(self._close())).result(_PATIENCE_S)
        self._thread.shutdown(wait=False)

    def _asked(self) -> Stats | None:
        asking = self._thread.submit(lambda: asyncio.run(self._stats()))
        try:
            return asking.result(_PATIENCE_S)
        except TimeoutError:
            log.warning("the store did not answer a scrape within %gs", _PATIENCE_S)
        except MainstayError as error:
            log.warning("the store could not be asked for a scrape: %s", error)
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
    """Add the queues of an app to a registry (Prometheus' own if none is given), for a program with a `/metrics` of its
    own. What the program itself submits is counted there as well when MAINSTAY_METRICS=on."""
    collector = QueueCollector(app)
    from prometheus_client import REGISTRY  # noqa: PLC0415 - an extra

    (registry or REGISTRY).register(collector)
    return collector


class Served:
    """Where metrics are served; `watch` says of which store, as soon as that is known."""

    def __init__(self, url: str, queues: QueueCollector) -> None:
        self.url = url
        self.watch = queues.watch


@contextlib.contextmanager
def serving(address: str) -> Iterator[Served]:
    """Serve the metrics of this process and all it starts, at http://ADDRESS/metrics, meanwhile.

    Processes started within the block count into files of a folder that the environment names; they must not be
    started before, nor may this one have counted before.
    """
    host, port = _host_and_port(address)
    check_installed()
    with _counting_together() as folder:
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
            server.set_app(_of_this_machine(server.get_app()))
        served = Served(_url(host, server.server_port), queues)
        log.info("serving metrics at %s", served.url)
        try:
            yield served
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
            queues.close()


def _of_this_machine(app: Any) -> Any:
    """Refuses requests that call this machine by another name. A page of a stranger can have its own name point to
    127.0.0.1 (DNS rebinding) and would read all that is answered; but its browser still says that name as the host."""

    def checked(environ: dict[str, Any], start_response: Any) -> Any:
        host = environ.get("HTTP_HOST", "")
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if _is_loopback(name):
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"metrics are served to this machine: ask for them as 127.0.0.1 or localhost\n"]

    return checked


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


@contextlib.contextmanager
def _counting_together() -> Iterator[str]:
    """A folder into which this process and those it starts count; one that is named already is used, and left."""
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
    for queue, found in sorted(stats.queues.items()):
        if is_private(queue):
            continue
        for status, n in sorted(told_counts(found.counts).items()):
            jobs.add_metric((queue, status), n)
        oldest_ms = found.oldest_ready_ms
        age.add_metric((queue,), 0 if oldest_ms is None else max(0, stats.at_ms - oldest_ms) / 1000)
    sessions, aside, leader = _family(SESSIONS), _family(ASIDE), _family(LEADER)
    sessions.add_metric((), stats.sessions)
    aside.add_metric((), stats.aside)
    leader.add_metric((), stats.leader is not None)
    yield from (jobs, age, sessions, aside, leader)


def told_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """What is told of a queue's counts: also of the states in which jobs wait for a person, when none does. Growth is
    seen only of what was told before: the first jobs of a queue that are given up would not count."""
    return {**dict.fromkeys(_FOR_A_PERSON, 0), **counts}


def _family(metric: StoreMetric) -> Any:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - an extra

    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
