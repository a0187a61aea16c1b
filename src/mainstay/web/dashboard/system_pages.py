"""The pages of queues, workers and schedules, from the last snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

import msgspec
from starlette.responses import Response

from ...control import worker_of
from ..live.snapshot import QueueSnapshot, SessionSnapshot
from .overview import OverviewChart, recent_samples
from .page import PageView

#: queues on one page
_QUEUES = 200


async def queues(view: PageView) -> Response:
    history = recent_samples(view)
    x = [sample.at_ms / 1000 for sample in history]
    all_queues = view.snapshot.queues
    # of very many, show those that may need attention: the paused and the deepest ones
    shown = sorted(sorted(all_queues, key=lambda queue: (not queue.paused, -queue.waiting))[:_QUEUES], key=_name)
    depths = {
        queue.name: OverviewChart(
            id=f"depth-{place}",
            title=queue.name,
            unit="waiting",
            now=queue.waiting,
            x=x,
            lines=[
                {
                    "name": "waiting",
                    "look": "wait",
                    "values": [sample.queues.get(queue.name, 0) for sample in history],
                }
            ],
        )
        for place, queue in enumerate(shown)
    }
    limits = await view.served.store.limits()
    return view.page(
        "queues.html", title="Queues", queues=shown, hidden=len(all_queues) - len(shown), depths=depths, limits=limits
    )


def _name(queue: QueueSnapshot) -> str:
    return queue.name


class WorkerProcesses(msgspec.Struct, frozen=True, kw_only=True):
    """One worker: its processes, which end together."""

    sessions: list[SessionSnapshot]

    @property
    def first(self) -> SessionSnapshot:
        return self.sessions[0]

    @property
    def draining(self) -> SessionSnapshot | None:
        """A session that was asked to drain; then all of them end."""
        return next((each for each in self.sessions if each.draining_ms is not None and not each.dead), None)

    @property
    def alive(self) -> SessionSnapshot | None:
        """A session that can be asked to drain."""
        return next((each for each in self.sessions if not each.dead), None)


async def workers(view: PageView) -> Response:
    by_worker: dict[Hashable, list[SessionSnapshot]] = defaultdict(list)
    for session in view.snapshot.sessions:
        by_worker[worker_of(session)].append(session)
    crews = [WorkerProcesses(sessions=sessions) for sessions in by_worker.values()]
    return view.page("workers.html", title="Workers", workers=crews)


async def schedules(view: PageView) -> Response:
    return view.page("schedules.html", title="Schedules")


__all__ = ["queues", "schedules", "workers"]
