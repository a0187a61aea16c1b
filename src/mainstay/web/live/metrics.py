"""`/metrics` for Prometheus: the last snapshot of each store, and the requests of this server.

A scrape reads no store. Workers expose their own counters (`mainstay worker --metrics`); the names are the same, with
the store as an additional label. Needs the extra `prometheus`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...errors import MissingExtra
from ...report.metrics import AGE, ASIDE, JOBS, LEADER, SESSIONS, UP, exposed_counts
from ...stores.metrics import StoreMetric, check_installed
from ..cluster_source import ClusterSource
from ..problems import Problem
from ..services import WebServices
from .hub import LiveHub
from .request_counts import BOUNDS_S, RequestCounts
from .snapshot import Snapshot

PAUSED = StoreMetric("mainstay_queue_paused", "gauge", ("queue",), "1 if the queue is paused, else 0")
PASSING = StoreMetric(
    "mainstay_state_oldest_seconds",
    "gauge",
    ("status",),
    "age of the oldest job in a state that jobs should leave soon",
)
SEEN = StoreMetric("mainstay_store_seen_seconds", "gauge", (), "age of the numbers of the store")
REQUESTS = StoreMetric("mainstay_http_requests_total", "counter", ("part", "method", "status"), "answered requests")
REQUEST_SECONDS = StoreMetric(
    "mainstay_http_request_seconds", "histogram", ("part",), "time until the response began", tuple(BOUNDS_S)
)
OPEN = StoreMetric("mainstay_http_open_requests", "gauge", (), "open requests, including live streams")

#: metrics of each store, with its name as the first label
OF_STORES = tuple(
    msgspec.structs.replace(metric, labels=("store", *metric.labels))
    for metric in (
        msgspec.structs.replace(UP, help="1 if the store answered the last read, else 0"),
        SEEN,
        JOBS,
        AGE,
        PAUSED,
        PASSING,
        SESSIONS,
        ASIDE,
        LEADER,
    )
)
OF_SERVER = (REQUESTS, REQUEST_SECONDS, OPEN)
METRICS = (*OF_STORES, *OF_SERVER)
_BY_NAME = {metric.name: metric for metric in METRICS}

Row = tuple[tuple[str, ...], float]


def routes(site: WebServices, requests: RequestCounts) -> list[BaseRoute]:
    """The page for Prometheus. With tokens, it needs the scope `read`."""

    async def metrics(request: Request) -> Response:
        await site.guard.admit(request, "read")
        try:
            check_installed()
        except MissingExtra as error:
            raise Problem(501, error.code, str(error)) from None
        from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest  # noqa: PLC0415

        registry = CollectorRegistry()
        registry.register(_Collector(site.hub, tuple(site.stores.by_name), requests, site.cluster))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return [Route("/metrics", metrics)]


class _Collector:
    """Collects all metrics for prometheus_client."""

    def __init__(
        self, hub: LiveHub, names: Iterable[str], requests: RequestCounts, cluster: ClusterSource | None
    ) -> None:
        self._hub = hub
        self._names = names
        self._requests = requests
        self._cluster = cluster

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        snapshots = [self._hub.last_known(name) for name in self._names]
        rows: dict[str, list[Row]] = {metric.name: [] for metric in OF_STORES}
        for snapshot in snapshots:
            for metric, row in _of_store(snapshot):
                rows[metric.name].append(((snapshot.store, *row[0]), row[1]))
        for name, values in rows.items():
            yield _gauge(_BY_NAME[name], values)
        if self._cluster is not None:
            yield from _of_cluster(self._cluster)
        yield from _of_server(self._requests)


def _of_store(snapshot: Snapshot) -> Iterator[tuple[StoreMetric, Row]]:
    yield UP, ((), float(snapshot.up))
    if not snapshot.stats_ms:
        return
    yield SEEN, ((), max(0, snapshot.at_ms - snapshot.stats_ms) / 1000)
    if not snapshot.up:
        # old numbers would pass for the current state
        return
    for queue in snapshot.queues:
        for status, n in exposed_counts(queue.counts).items():
            yield JOBS, ((queue.name, status), n)
        oldest_ms = queue.oldest_ready_ms
        yield AGE, ((queue.name,), 0 if oldest_ms is None else max(0, snapshot.stats_ms - oldest_ms) / 1000)
        yield PAUSED, ((queue.name,), float(queue.paused))
    for status, since_ms in snapshot.since_ms.items():
        yield PASSING, ((status,), max(0, snapshot.at_ms - since_ms) / 1000)
    yield SESSIONS, ((), snapshot.live_sessions)
    yield ASIDE, ((), snapshot.aside)
    yield LEADER, ((), float(snapshot.leader is not None))


def _of_server(requests: RequestCounts) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily  # noqa: PLC0415 - an extra

    answered = CounterMetricFamily(REQUESTS.name, REQUESTS.help, labels=REQUESTS.labels)
    for (part, method, status), n in sorted(requests.answered.items()):
        answered.add_metric((part, method, str(status)), n)
    yield answered
    took = HistogramMetricFamily(REQUEST_SECONDS.name, REQUEST_SECONDS.help, labels=REQUEST_SECONDS.labels)
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    for part, times in sorted(requests.times.items()):
        took.add_metric((part,), list(zip(bounds, accumulate(times.bins), strict=True)), times.sum_s)
    yield took
    yield _gauge(OPEN, [((), requests.open)])


def _of_cluster(cluster: ClusterSource) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - an extra

    rows: dict[StoreMetric, list[Row]] = {}
    for metric, labels, value in cluster.metrics():
        rows.setdefault(metric, []).append((labels, value))
    for metric, values in rows.items():
        if metric.kind == "gauge":
            yield _gauge(metric, values)
            continue
        counted = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in values:
            counted.add_metric(labels, value)
        yield counted


def _gauge(metric: StoreMetric, rows: Iterable[Row]) -> Any:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - an extra

    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


__all__ = ["METRICS", "routes"]
