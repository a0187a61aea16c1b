"""Metrics of a store: a wrapper around any adapter that counts for Prometheus.

MAINSTAY_METRICS=on switches it on for every store that `open_store` opens, so the engines of a worker need no change.
Moves are counted where the store commits them (its `observer`), so moves that the store makes by itself count as well.
Calls of the port are timed, and their results counted. Needs the extra `prometheus`. For what is exposed, and how, see
`mainstay.report.metrics` and docs/metrics.md.
"""

from __future__ import annotations

import functools
import time
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from ..errors import InvalidInput, MainstayError, MissingExtra
from ..model import PRIVATE, Job, is_private
from .change_check import moves
from .port import ChangeResult, JobStore, Observer, Written
from .proxy import StoreMethod, StoreProxy

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: the environment variable that switches it on: `on`, or `names` to add the names of tasks
VARIABLE = "MAINSTAY_METRICS"
#: how many queues, and how many names, get a label of their own; all later ones share the label "other"
MOST_LABELS = 200

_CALL_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_STATE_S = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0, 259200.0)
_SIZES = (0.0, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 1000.0)


class StoreMetric(msgspec.Struct, frozen=True):
    """The declaration of one metric."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


TRANSITIONS = StoreMetric(
    "mainstay_transitions_total",
    "counter",
    ("kind", "queue", "name", "from", "to"),
    "moves of jobs from one state to another; a submit comes from 'new'",
)
STATE_SECONDS = StoreMetric(
    "mainstay_state_seconds",
    "histogram",
    ("kind", "queue", "status"),
    "how long jobs were in a state, recorded when they leave it",
    _STATE_S,
)
PICKUP_SECONDS = StoreMetric(
    "mainstay_pickup_seconds",
    "histogram",
    ("queue",),
    "from the time a job was due until a worker had it",
    _STATE_S,
)
CONFLICTS = StoreMetric(
    "mainstay_conflicts_total", "counter", (), "changes that lost a race: another process had changed the row first"
)
GHOSTS = StoreMetric(
    "mainstay_ghosts_refused_total",
    "counter",
    ("method",),
    "writes of workers that had lost their claim, refused",
)
CLAIMS = StoreMetric("mainstay_claims_total", "counter", ("found",), "claims, by whether they found jobs: yes or no")
BATCH_SIZE = StoreMetric(
    "mainstay_batch_size",
    "histogram",
    ("method",),
    "how many jobs went with one call: claimed, inserted, changed, reported",
    _SIZES,
)
CALL_SECONDS = StoreMetric("mainstay_store_call_seconds", "histogram", ("method",), "how long calls took", _CALL_S)
ERRORS = StoreMetric(
    "mainstay_store_errors_total", "counter", ("method", "code"), "calls that raised, by the error's code"
)

#: what a metered store counts
COUNTED = (
    TRANSITIONS,
    STATE_SECONDS,
    PICKUP_SECONDS,
    CONFLICTS,
    GHOSTS,
    CLAIMS,
    BATCH_SIZE,
    CALL_SECONDS,
    ERRORS,
)


def wanted(environ: Mapping[str, str]) -> Literal["", "on", "names"]:
    """The mode that the environment sets; "" is off.

    >>> wanted({"MAINSTAY_METRICS": "on"}), wanted({})
    ('on', '')
    """
    text = environ.get(VARIABLE, "").strip().lower()
    if text in ("", "off", "false", "no", "0"):
        return ""
    if text in ("on", "true", "yes", "1"):
        return "on"
    if text == "names":
        return "names"
    raise InvalidInput(VARIABLE, f"{text!r} is not one of on, off, names")


def check_installed() -> None:
    """Raise `MissingExtra` if the Prometheus client is missing."""
    if find_spec("prometheus_client") is None:
        raise MissingExtra("metrics", "prometheus_client is not installed; pip install 'mainstay[prometheus]'")


class MeteredStore(StoreProxy):
    """A store whose calls and moves are counted in a registry; by default in the one of the Prometheus client.

    `names` adds the names of tasks to the moves. Several stores may share a registry.
    """

    def __init__(self, store: JobStore, registry: CollectorRegistry | None = None, *, names: bool = False) -> None:
        super().__init__(store)
        self._next: Observer | None = store.observer
        meters = self._meters = Meters.of(registry)
        self._names = names
        store.observer = self._observe
        self._replace(lambda method: _timed(method, getattr(store, method), meters))

    @property
    def observer(self) -> Observer | None:
        return self._next

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._next = observer

    def _observe(self, written: Sequence[Written]) -> None:
        self._meters.count(written, names=self._names)
        if self._next is not None:
            self._next(written)


def metered(store: JobStore, registry: CollectorRegistry | None = None, *, names: bool = False) -> JobStore:
    """The same store, metered."""
    return MeteredStore(store, registry, names=names)


class Meters:
    """The metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter, Histogram  # noqa: PLC0415 - an extra

        def counter(metric: StoreMetric) -> Any:
            return Counter(metric.name, metric.help, metric.labels, registry=registry)

        def histogram(metric: StoreMetric) -> Any:
            return Histogram(metric.name, metric.help, metric.labels, registry=registry, buckets=metric.buckets)

        self.transitions = counter(TRANSITIONS)
        self.state_s = histogram(STATE_SECONDS)
        self.pickup_s = histogram(PICKUP_SECONDS)
        self.conflicts = counter(CONFLICTS)
        self.ghosts = counter(GHOSTS)
        self.claims = counter(CLAIMS)
        self.batch_size = histogram(BATCH_SIZE)
        self.call_s = histogram(CALL_SECONDS)
        self.errors = counter(ERRORS)
        # cached: a lookup by `labels` takes as long as the counting itself
        self._state_s: Callable[..., Any] = functools.cache(self.state_s.labels)
        self._pickup_s: Callable[..., Any] = functools.cache(self.pickup_s.labels)
        self._queues = _Bounded()
        self._names = _Bounded()

    @classmethod
    def of(cls, registry: CollectorRegistry | None) -> Meters:
        """The metrics of a registry. Made once, because a registry accepts each name once."""
        check_installed()
        from prometheus_client import REGISTRY  # noqa: PLC0415 - an extra

        registry = registry or REGISTRY
        found = _meters.get(registry)
        if found is None:
            found = _meters[registry] = cls(registry)
        return found

    def count(self, written: Sequence[Written], *, names: bool) -> None:
        """Count what one commit moved."""
        tally: Tally[tuple[str, str, str, str, str]] = Tally()
        for before, after, events in written:
            kind, queue = _kind(after), self._queues.label(PRIVATE if is_private(after.queue) else after.queue)
            name = self._names.label(after.name) if names else ""
            moved = [event for event in events if moves(event)]
            for event in moved:
                tally[kind, queue, name, event.source or "new", event.to] += 1
            if before is None or not moved:
                continue
            self._state_s(kind, queue, before.status).observe(_seconds(_since_ms(before), moved[0].at_ms))
            if after.token > before.token:
                self._pickup_s(queue).observe(_seconds(after.due_ms, moved[-1].at_ms))
        for labels, n in tally.items():
            self.transitions.labels(*labels).inc(n)

    def count_call(self, method: str, argument: Any, answer: Any) -> None:
        """Count the result of a call."""
        if method == "claim":
            self.claims.labels("yes" if answer else "no").inc()
            self.batch_size.labels(method).observe(len(answer))
        elif method in ("insert", "apply", "report"):
            self.batch_size.labels(method).observe(len(argument))
        if method == "apply":
            outcomes = Tally(each.outcome for each in cast("Sequence[ChangeResult]", answer))
            if conflicts := outcomes["conflict"]:
                self.conflicts.inc(conflicts)
            if stale := outcomes["stale"]:
                self.ghosts.labels(method).inc(stale)
        elif method == "report" and (refused := answer.count(False)):
            self.ghosts.labels(method).inc(refused)


_meters: dict[CollectorRegistry, Meters] = {}


class _Bounded:
    """Bounds the number of values of a label: each of them takes memory of the Prometheus server forever."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= MOST_LABELS:
            return "other"
        self._known.add(value)
        return value


def _timed(method: str, call: StoreMethod, meters: Meters) -> StoreMethod:
    took = meters.call_s.labels(method)

    async def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            answer = await call(*args, **kwargs)
        except Exception as error:
            code = error.code if isinstance(error, MainstayError) else "unexpected"
            meters.errors.labels(method, code).inc()
            raise
        finally:
            took.observe(time.perf_counter() - began)
        meters.count_call(method, args[0] if args else (), answer)
        return answer

    return timed


def _kind(job: Job) -> str:
    return job.kind if job.parent is None else f"{job.kind} unit"


def _since_ms(before: Job) -> int:
    """When the job entered the state that it leaves. A note on a running job (an extension) does not restart it."""
    if before.status == "running" and before.claimed_ms is not None:
        return before.claimed_ms
    return before.changed_ms


def _seconds(from_ms: int, to_ms: int) -> float:
    return max(0, to_ms - from_ms) / 1000
