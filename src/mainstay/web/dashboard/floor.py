"""Queues, workers and schedules: what the work runs on. All from what the hub knows, so nothing waits for the store."""

from __future__ import annotations

from collections import defaultdict

from starlette.responses import Response

from ..live.snapshot import SessionSeen
from .overview import Chart, thinned
from .page import View


async def queues(view: View) -> Response:
    history = thinned(view.site.hub.history(view.place.name))
    x = [sample.at_ms / 1000 for sample in history]
    depths = {
        queue.name: Chart(
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
        for place, queue in enumerate(view.snapshot.queues)
    }
    limits = await view.place.store.limits()
    return view.page("queues.html", title="Queues", depths=depths, limits=limits)


async def workers(view: View) -> Response:
    by_worker: dict[tuple[str, str], list[SessionSeen]] = defaultdict(list)
    for session in view.snapshot.sessions:
        by_worker[(session.worker, session.host)].append(session)
    return view.page("workers.html", title="Workers", workers=by_worker)


async def schedules(view: View) -> Response:
    return view.page("schedules.html", title="Schedules")


__all__ = ["queues", "schedules", "workers"]
