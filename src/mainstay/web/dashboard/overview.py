"""The overview page, from the last snapshot: it does not wait for the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from ...lifecycle import JOB
from ..live.history import Sample, sample_of
from ..live.snapshot import HeldJob, QueueSnapshot, SessionSnapshot, Snapshot
from .page import PageView

_FAILED = tuple(name for name, state in JOB.states.items() if state.settled and not state.final)
#: points of a sparkline; more cannot be seen
_POINTS = 150
#: jobs at work that are shown
_WORKING = 15
#: queues that are shown
_QUEUES = 6


class OverviewChart(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a small chart, which the script of the page draws."""

    id: str
    title: str
    unit: str
    now: float
    x: list[float]
    """seconds since 1970"""
    lines: list[dict[str, Any]]
    """name, look, values"""


async def overview(view: PageView) -> Response:
    history = recent_samples(view)
    return view.page(
        "overview.html",
        title="Overview",
        charts=charts_of(history),
        failed_states=_FAILED,
        working=at_work(view.snapshot),
        most=_WORKING,
        deepest=deepest(view.snapshot),
    )


def at_work(snapshot: Snapshot) -> list[tuple[HeldJob, SessionSnapshot]]:
    """Held jobs with their sessions; without units of batches and load tests that are listed themselves."""
    whole = {run.id for run in snapshot.runs}
    return [
        (held, session)
        for session in snapshot.sessions
        if session.at_work
        for held in session.jobs
        if held.id not in whole and held.parent not in whole
    ]


def deepest(snapshot: Snapshot) -> list[QueueSnapshot]:
    """The queues that may need attention: paused ones first, then those with the most waiting jobs."""
    found = [queue for queue in snapshot.queues if queue.paused or queue.waiting]
    return sorted(found, key=lambda queue: (not queue.paused, -queue.waiting))[:_QUEUES]


def recent_samples(view: PageView) -> list[Sample]:
    """The samples for charts, up to the snapshot of the page, so that charts and numbers agree."""
    history, now = view.site.hub.history(view.served.name), sample_of(view.snapshot)
    if now.at_ms > (history[-1].at_ms if history else 0):
        history = [*history, now]
    return thinned(history)


def thinned(history: Sequence[Sample]) -> list[Sample]:
    """The samples of the last ten minutes, in no more points than can be seen."""
    if not history:
        return []
    recent = [sample for sample in history if sample.at_ms >= history[-1].at_ms - 600_000]
    step = max(1, -(-len(recent) // _POINTS))
    return recent[::-1][::step][::-1]


def charts_of(history: Sequence[Sample]) -> list[OverviewChart]:
    """The charts of the overview."""
    x = [sample.at_ms / 1000 for sample in history]

    def line(name: str, look: str, value: Callable[[Sample], float]) -> dict[str, Any]:
        return {"name": name, "look": look, "values": [round(value(sample), 3) for sample in history]}

    def last(value: Callable[[Sample], float]) -> float:
        return value(history[-1]) if history else 0.0

    return [
        OverviewChart(
            id="submitted",
            title="Submitted",
            unit="a minute",
            now=last(lambda sample: sample.submitted),
            x=x,
            lines=[line("submitted", "wait", lambda sample: sample.submitted)],
        ),
        OverviewChart(
            id="done",
            title="Succeeded",
            unit="a minute",
            now=last(lambda sample: sample.rates.get("succeeded", 0.0)),
            x=x,
            lines=[line("succeeded", "good", lambda sample: sample.rates.get("succeeded", 0.0))],
        ),
        OverviewChart(
            id="failed",
            title="Failed attempts",
            unit="a minute",
            now=last(_failing),
            x=x,
            lines=[line("failed", "bad", _failing)],
        ),
        OverviewChart(
            id="waiting",
            title="Waiting",
            unit=_jobs(last(lambda sample: sample.waiting)),
            now=last(lambda sample: sample.waiting),
            x=x,
            lines=[line("waiting", "wait", lambda sample: sample.waiting)],
        ),
        OverviewChart(
            id="running",
            title="Running",
            unit=_jobs(last(lambda sample: sample.counts.get("running", 0))),
            now=last(lambda sample: sample.counts.get("running", 0)),
            x=x,
            lines=[line("running", "busy", lambda sample: sample.counts.get("running", 0))],
        ),
    ]


def _jobs(count: float) -> str:
    return "job" if count == 1 else "jobs"


def _failing(sample: Sample) -> float:
    return sum(sample.rates.get(status, 0.0) for status in ("failed", "timed_out"))


__all__ = ["OverviewChart", "at_work", "charts_of", "deepest", "overview", "recent_samples", "thinned"]
