"""The stores of the server; workers, statistics and checks of one store."""

from __future__ import annotations

import time

import msgspec
from starlette.responses import Response

from ...control import StatsView, overview, read_stats, session_view
from ...control.check import watching
from .job_responses import DrainedSessions, WorkerList, WorkingSession
from .operation import ApiOperation, ApiRequest, ApiResponse, NoParameters, json_response
from .store_responses import QuickCheckResult, StoreList
from .views import masked_job

#: rows of one quick check; the next one continues after them
_CHECKED = 1000
#: held jobs that are listed for a session
_SHOWN = 50


async def list_stores(ask: ApiRequest[NoParameters, None]) -> Response:
    stores, now_s = ask.site.stores, time.monotonic()
    return json_response(
        {
            "stores": [
                {
                    "name": served.name,
                    "url": served.url,
                    "durability": served.store.durability,
                    "default": served is stores.first,
                    "silent_s": round(now_s - served.answered_s, 3),
                    "error": served.error,
                }
                for served in stores.by_name.values()
            ]
        }
    )


async def list_workers(ask: ApiRequest[NoParameters, None]) -> Response:
    store, masker = ask.served.store, ask.site.masker
    sessions = []
    for each in await overview.sessions(store):
        jobs = tuple(masked_job(job, masker, payload=False) for job in each.held[:_SHOWN])
        sessions.append(WorkingSession(**msgspec.structs.asdict(each.view), holds=each.holds, jobs=jobs))
    return json_response(WorkerList(sessions=sessions))


async def drain_worker(ask: ApiRequest[NoParameters, None]) -> Response:
    drained = await ask.control.operations.drain(ask.path("worker"), actor=ask.caller.actor)
    clock = ask.served.store.clock
    lease_ms, now_ms = clock.lease_ms(), clock.now_ms()
    return json_response(
        DrainedSessions(sessions=[session_view(each, lease_ms=lease_ms, now_ms=now_ms) for each in drained])
    )


async def get_stats(ask: ApiRequest[NoParameters, None]) -> Response:
    return json_response(await read_stats(ask.served.store))


async def check_store(ask: ApiRequest[NoParameters, NoParameters]) -> Response:
    served = ask.served
    watch = ask.site.checks.setdefault(served.name, watching(served.store, rows=_CHECKED))
    report = await watch(None)
    return json_response({**msgspec.to_builtins(report), "store": served.url, "clean": report.clean})


OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/stores",
        handler=list_stores,
        scope="read",
        tag="store",
        summary="List the stores of this server",
        answers={200: ApiResponse(description="The stores.", type=StoreList)},
        in_store=False,
    ),
    ApiOperation(
        method="GET",
        path="/workers",
        handler=list_workers,
        scope="read",
        tag="store",
        summary="List the sessions of workers, and their jobs",
        answers={200: ApiResponse(description="The sessions.", type=WorkerList)},
    ),
    ApiOperation(
        method="POST",
        path="/workers/{worker}/drain",
        handler=drain_worker,
        scope="operate",
        tag="store",
        summary="Drain a worker, given by its name or the id of one of its sessions",
        about="It takes no more jobs, has its grace period to finish running jobs, and exits. It receives the request "
        "with its next heartbeat. All its processes drain; the record names the first caller.",
        body=NoParameters,
        answers={200: ApiResponse(description="The sessions that received the request.", type=DrainedSessions)},
        refusals=(404,),
    ),
    ApiOperation(
        method="GET",
        path="/stats",
        handler=get_stats,
        scope="read",
        tag="store",
        summary="Read the statistics of a store",
        answers={200: ApiResponse(description="Counts, rates and ages.", type=StatsView)},
    ),
    ApiOperation(
        method="POST",
        path="/check",
        handler=check_store,
        scope="operate",
        tag="store",
        summary="Check some jobs against every invariant; the next call continues from there",
        about="Changes nothing. To check all jobs, or to repair, run `mainstay check`.",
        body=NoParameters,
        answers={200: ApiResponse(description="The result.", type=QuickCheckResult)},
    ),
)
