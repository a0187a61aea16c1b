"""`/metrics` for Prometheus: what the hub last saw of each store, and how this server does.

A scrape asks no store. What workers count themselves is told by them (`mainstay worker --metrics`); the names are the
same, with the store as one more label. Needs the extra `prometheus`.
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
from ...report.metrics import AGE, ASIDE, JOBS, LEADER, SESSIONS, UP, told_counts
from ...stores.metrics import StoreMetric, check_installed
from ..problems import Problem
from ..services import WebServices
from .hub import LiveHub
from .request_counts import BOUNDS_S, RequestCounts
from .snapshot import Snapshot

PAUSED = StoreMetric("mainstay_queue_paused", "gauge", ("queue",), "1 if the queue hands out no jobs, else 0")
PASSING = StoreMetric(
    "mainstay_state_oldest_seconds",
    "gauge",
    ("status",),
    "of states that a job only passes through: how long the one that is in it longest has been",
)
SEEN = StoreMetric("mainstay_store_seen_seconds", "gauge", (), "how old the numbers of the store are")
REQUESTS = StoreMetric(
    "mainstay_http_requests_total", "counter", ("part", "method", "status"), "requests that were answered"
)
REQUEST_SECONDS = StoreMetric(
    "mainstay_http_request_seconds", "histogram", ("part",), "until the answer began", tuple(BOUNDS_S)
)
OPEN = StoreMetric("mainstay_http_open_requests", "gauge", (), "requests being answered now, live streams included")

#: of each store, with its name as the first label
OF_STORES = tuple(
    msgspec.structs.replace(metric, labels=("store", *metric.labels))
    for metric in (
        msgspec.structs.replace(UP, help="1 if the store answered when it was last asked, else 0"),
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
    """The page that is scraped; with tokens, by one that may read."""

    async def metrics(request: Request) -> Response:
        await site.guard.admit(request, "read")
        try:
            check_installed()
        except MissingExtra as error:
            raise Problem(501, error.code, str(error)) from None
        from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest  # noqa: PLC0415

        registry = CollectorRegistry()
        registry.register(_Collector(site.hub, tuple(site.stores.by_name), requests))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return [Route("/metrics", metrics)]


class _Collector:
    """Everything at one moment, as prometheus_client asks for it."""

    def __init__(self, hub: LiveHub, names: Iterable[str], requests: RequestCounts) -> None:
        self._hub = hub
        self._names = names
        self._requests = requests

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        snapshots = [self._hub.last_known(name) for name in self._names]
        rows: dict[str, list[Row]] = {metric.name: [] for metric in OF_STORES}
        for snapshot in snapshots:
            for metric, row in _of_store(snapshot):
                rows[metric.name].append(((snapshot.store, *row[0]), row[1]))
        for name, found in rows.items():
            yield _gauge(_BY_NAME[name], found)
        yield from _of_server(self._requests)


def _of_store(seen: Snapshot) -> Iterator[tuple[StoreMetric, Row]]:
    yield UP, ((), float(seen.up))
    if not seen.stats_ms:
        return
    yield SEEN, ((), max(0, seen.at_ms - seen.stats_ms) / 1000)
    if not seen.up:
        # numbers of a store that is away would pass for its state
        return
    for queue in seen.queues:
        for status, n in told_counts(queue.counts).items():
            yield JOBS, ((queue.name, status), n)
        oldest_ms = queue.oldest_ready_ms
        yield AGE, ((queue.name,), 0 if oldest_ms is None else max(0, seen.stats_ms - oldest_ms) / 1000)
        yield PAUSED, ((queue.name,), float(queue.paused))
    for status, since_ms in seen.since_ms.items():
        yield PASSING, ((status,), max(0, seen.at_ms - since_ms) / 1000)
    yield SESSIONS, ((), seen.live_sessions)
    yield ASIDE, ((), seen.aside)
    yield LEADER, ((), float(seen.leader is not None))


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


def _gauge(metric: StoreMetric, rows: Iterable[Row]) -> Any:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - an extra

    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


__all__ = ["METRICS", "routes"]
