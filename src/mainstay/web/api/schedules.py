"""Schedules."""

from __future__ import annotations

import difflib
from typing import Any

from starlette.responses import Response

from ...control import schedule_data
from ...control.schedules import ScheduleView, describe, drop, pause, resume, run_now
from ..problems import Problem
from .operation import ApiOperation, ApiRequest, ApiResponse, NoParameters, json_response
from .store_responses import ScheduleDropped, ScheduleInfo, ScheduleList, ScheduleRun


async def list_schedules(ask: ApiRequest[NoParameters, None]) -> Response:
    return json_response({"schedules": [schedule_data(view) for view in await describe(ask.served.control)]})


async def get_schedule(ask: ApiRequest[NoParameters, None]) -> Response:
    return json_response(schedule_data(await _found(ask)))


async def pause_schedule(ask: ApiRequest[NoParameters, NoParameters]) -> Response:
    await _found(ask)
    await pause(ask.control, ask.path("name"), actor=ask.caller.actor)
    return json_response(schedule_data(await _found(ask)))


async def resume_schedule(ask: ApiRequest[NoParameters, NoParameters]) -> Response:
    await _found(ask)
    await resume(ask.control, ask.path("name"), actor=ask.caller.actor)
    return json_response(schedule_data(await _found(ask)))


async def run_schedule(ask: ApiRequest[NoParameters, NoParameters]) -> Response:
    view = await _found(ask)
    if view.task == "?":
        raise Problem(409, "schedule_unreadable", f"schedule {view.name} cannot be run: {view.problem}")
    made = await run_now(ask.control, view.name, actor=ask.caller.actor)
    return json_response({"schedule": view.name, "id": made.id, "created": made.created}, 201 if made.created else 200)


async def drop_schedule(ask: ApiRequest[NoParameters, None]) -> Response:
    await _found(ask)
    await drop(ask.control, ask.path("name"), actor=ask.caller.actor)
    return json_response({"name": ask.path("name"), "dropped": True})


async def _found(ask: ApiRequest[Any, Any]) -> ScheduleView:
    name = ask.path("name")
    views = {view.name: view for view in await describe(ask.served.control)}
    if name in views:
        return views[name]
    close = difflib.get_close_matches(name, views, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(views)[:20]) or 'none'}"
    raise Problem(404, "schedule_not_found", f"there is no schedule {name[:100]!r}; {hint}", field="name")


def _change(path: str, handler: Any, summary: str, **more: Any) -> ApiOperation:
    return ApiOperation(
        method="POST",
        path=f"/schedules/{{name}}/{path}",
        handler=handler,
        scope="operate",
        tag="schedules",
        summary=summary,
        body=NoParameters,
        answers=more.pop("answers", {200: ApiResponse(description="The schedule as it is now.", type=ScheduleInfo)}),
        refusals=(404, 409),
        **more,
    )


OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/schedules",
        handler=list_schedules,
        scope="read",
        tag="schedules",
        summary="List the schedules, with their next ticks",
        answers={200: ApiResponse(description="The schedules.", type=ScheduleList)},
    ),
    ApiOperation(
        method="GET",
        path="/schedules/{name}",
        handler=get_schedule,
        scope="read",
        tag="schedules",
        summary="Read one schedule",
        answers={200: ApiResponse(description="The schedule.", type=ScheduleInfo)},
        refusals=(404,),
    ),
    _change("pause", pause_schedule, "Pause a schedule: it does not tick"),
    _change("resume", resume_schedule, "Resume a schedule: it ticks again, from now on"),
    _change(
        "run",
        run_schedule,
        "Submit the job of a schedule now, in addition to its ticks",
        about="Also when it is paused. Hooks of the app do not run: the server does not have them.",
        answers={
            201: ApiResponse(description="The job was submitted.", type=ScheduleRun),
            200: ApiResponse(
                description="An earlier job is not settled, so no second one was submitted.", type=ScheduleRun
            ),
        },
    ),
    ApiOperation(
        method="DELETE",
        path="/schedules/{name}",
        handler=drop_schedule,
        scope="admin",
        tag="schedules",
        summary="Remove a schedule; its jobs stay",
        about="An app that still declares it registers it again when its next worker leads.",
        answers={200: ApiResponse(description="The schedule was removed.", type=ScheduleDropped)},
        refusals=(404,),
    ),
)
