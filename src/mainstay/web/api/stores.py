"""The stores of the server, and one store as a whole: who is at work, its numbers, its health."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.responses import Response

from ...control import looks
from ...control.check import watching
from ...control.unserved import unserved
from ...model import is_private
from .operation import Answered, Ask, Nothing, Operation, told
from .seen import Checked, QueueCounts, Stores
from .shapes import SessionShape, WorkingShape
from .views import job_view, session_view

#: rows that one look at the health of a store takes; the next looks at the next ones
_CHECKED = 1000
#: held jobs that are shown per session
_SHOWN = 50


class Workers(msgspec.Struct, kw_only=True):
    """Who is at work, the living first."""

    sessions: list[WorkingShape]


class Drained(msgspec.Struct, kw_only=True):
    """Who was asked to drain: all processes of the worker, or of all workers that have the name."""

    sessions: list[SessionShape]


class UnservedSeen(msgspec.Struct, kw_only=True):
    """Jobs that wait for a worker which is not there."""

    queue: str
    task: str | None
    """null: no live worker listens on the queue; else none of those that do knows this task"""
    jobs: int
    told: str


class StatsSeen(msgspec.Struct, kw_only=True):
    """A store at a glance."""

    at_ms: int
    queues: dict[str, QueueCounts]
    rates: dict[str, float]
    """moves into each status per minute, over the last four to five minutes"""
    submitted: float
    """jobs that came in per minute, over the last four to five minutes"""
    live_sessions: int
    sessions: list[SessionShape]
    limits: dict[str, int]
    aside: int
    """rows set aside because they could not be read"""
    findings: list[str]
    leader: str | None
    """the session that runs schedules, retention and checks"""
    unserved: list[UnservedSeen]
    """jobs that no live worker takes"""


async def list_stores(ask: Ask[Nothing, None]) -> Response:
    shelf, now_s = ask.site.shelf, time.monotonic()
    return told(
        {
            "stores": [
                {
                    "name": place.name,
                    "url": place.url,
                    "durability": place.store.durability,
                    "default": place is shelf.first,
                    "silent_s": round(now_s - place.answered_s, 3),
                    "error": place.error,
                }
                for place in shelf.places.values()
            ]
        }
    )


async def list_workers(ask: Ask[Nothing, None]) -> Response:
    store, masker = ask.place.store, ask.site.masker
    lease_ms, now_ms = store.clock.lease_ms(), store.clock.now_ms()
    return told(
        {
            "sessions": [
                {
                    **session_view(seen.session, lease_ms=lease_ms, now_ms=now_ms),
                    "holds": seen.holds,
                    "jobs": [job_view(job, masker, payload=False) for job in seen.held[:_SHOWN]],
                }
                for seen in await looks.sessions(store)
            ]
        }
    )


async def drain_worker(ask: Ask[Nothing, None]) -> Response:
    asked = await ask.control.drain(ask.path("worker"), actor=ask.caller.actor)
    clock = ask.place.store.clock
    lease_ms, now_ms = clock.lease_ms(), clock.now_ms()
    return told({"sessions": [session_view(each, lease_ms=lease_ms, now_ms=now_ms) for each in asked]})


async def get_stats(ask: Ask[Nothing, None]) -> Response:
    store = ask.place.store
    stats = await store.stats()
    found: dict[str, Any] = msgspec.to_builtins(stats)
    del found["routed"]
    found["queues"] = {name: queue for name, queue in found["queues"].items() if not is_private(name)}
    settings = {queue.name: queue for queue in await store.queues()}
    for name in settings.keys() - found["queues"].keys():
        found["queues"][name] = {"counts": {}, "oldest_ready_ms": None}
    for name, queue in found["queues"].items():
        queue["paused"] = name in settings and settings[name].paused
    lease_ms, now_ms = store.clock.lease_ms(), store.clock.now_ms()
    there = await store.sessions()
    found["unserved"] = [{**msgspec.to_builtins(each), "told": each.told} for each in unserved(stats, there, lease_ms)]
    sessions = [session_view(each, lease_ms=lease_ms, now_ms=now_ms) for each in there]
    living = sum(each["at_work"] for each in sessions)
    return told({**found, "live_sessions": living, "sessions": sessions, "limits": await store.limits()})


async def check_store(ask: Ask[Nothing, Nothing]) -> Response:
    place = ask.place
    watch = ask.site.checks.setdefault(place.name, watching(place.store, rows=_CHECKED))
    report = await watch(None)
    return told({**msgspec.to_builtins(report), "store": place.url, "clean": report.clean})


OPERATIONS = (
    Operation(
        method="GET",
        path="/stores",
        handler=list_stores,
        scope="read",
        tag="store",
        summary="List the stores of this server",
        answers={200: Answered(told="The stores.", type=Stores)},
        in_store=False,
    ),
    Operation(
        method="GET",
        path="/workers",
        handler=list_workers,
        scope="read",
        tag="store",
        summary="List who is at work, and what they run",
        answers={200: Answered(told="The workers' processes.", type=Workers)},
    ),
    Operation(
        method="POST",
        path="/workers/{worker}/drain",
        handler=drain_worker,
        scope="operate",
        tag="store",
        summary="Ask a worker to end in good order, by its name or the id of one of its sessions",
        about="It takes no more jobs, has its grace to finish what it runs, and exits. It hears of it with its next "
        "heartbeat. All its processes are asked; the first who asked stays on record.",
        body=Nothing,
        answers={200: Answered(told="Who was asked.", type=Drained)},
        refusals=(404,),
    ),
    Operation(
        method="GET",
        path="/stats",
        handler=get_stats,
        scope="read",
        tag="store",
        summary="See the state of a store at a glance",
        answers={200: Answered(told="Counts, rates and ages.", type=StatsSeen)},
    ),
    Operation(
        method="POST",
        path="/check",
        handler=check_store,
        scope="operate",
        tag="store",
        summary="Check some jobs against every invariant; the next call goes on from there",
        about="Changes nothing. For all of them at once, and to repair: mainstay check.",
        body=Nothing,
        answers={200: Answered(told="What was found.", type=Checked)},
    ),
)
