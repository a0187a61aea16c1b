"""The API of batch jobs: status, report, map, outputs, validate and resume."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...web.api import (
    ApiOperation,
    ApiRequest,
    ApiResponse,
    NoParameters,
    PageSize,
    Reason,
    json_response,
    shown_job,
    wanted_version,
)
from ..advice import batch_advice
from ..json_view import status_data
from ..report.heat_map import HeatMap, heat_map
from ..report.model import BatchReport
from ..validation_result import Validation
from .masks import masked_output, masked_unit, masked_validation, shown_report
from .responses import BatchStatusView, OutputPage, ResumeResult
from .services import service_of

#: units in the response of a dry run
_NAMED = 100


class OutputQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which outputs to list."""

    start: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    """index of the first unit"""
    limit: PageSize = 100
    """units"""
    state: list[Literal["present", "missing", "corrupt", "unreadable"]] | None = None


class MapQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a map."""

    columns: Annotated[int, Meta(ge=1, le=200)] = 60
    rows: Annotated[int, Meta(ge=1, le=200)] = 40
    facets: Annotated[int, Meta(ge=1, le=50)] = 12


class ValidateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to validate."""

    force: bool = False
    """ignore the results of earlier checks"""


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run the units with missing or corrupt outputs again."""

    dry_run: bool = False
    """only list these units"""
    reason: Reason | None = None


async def get_batch(ask: ApiRequest[NoParameters, None]) -> Response:
    status = await service_of(ask).status(ask.path("id"))
    job = await shown_job(ask.served.store, status.job, ask.site.masker)
    data = status_data(msgspec.structs.replace(status, job=job), now_ms=ask.served.store.clock.now_ms())
    validation, spec = status.validation, status.spec
    lacking = 0 if validation is None else validation.expected - validation.present
    return json_response(
        {
            **data,
            "sets": spec.sets,
            "validation": masked_validation(data["validation"], ask.site.masker),
            "runner": spec.runner.partition(":")[0],
            "resumed_from": spec.resumed_from,
            "advice": msgspec.to_builtins(batch_advice(job.id, job.status, lacking=lacking)),
        }
    )


async def get_report(ask: ApiRequest[NoParameters, None]) -> Response:
    return json_response(msgspec.to_builtins(await _report(ask), enc_hook=str))


async def get_map(ask: ApiRequest[MapQuery, None]) -> Response:
    report, size = await _report(ask), ask.query
    parameter_map = heat_map(report.outcomes, columns=size.columns, rows=size.rows, facets=size.facets)
    return json_response(msgspec.to_builtins(parameter_map))


async def list_outputs(ask: ApiRequest[OutputQuery, None]) -> Response:
    service, job_id, query = service_of(ask), ask.path("id"), ask.query
    limit = min(query.limit, ask.site.options.page_limit)
    outputs, next_start = await service.outputs(job_id, start=query.start, limit=limit)
    masker = ask.site.masker
    shown = [masked_output(each, masker) for each in outputs if query.state is None or each.state in query.state]
    place = (await service.store(job_id)).place
    return json_response({"place": place, "outputs": msgspec.to_builtins(shown), "next": next_start})


async def validate_job(ask: ApiRequest[NoParameters, ValidateRequest]) -> Response:
    version = await wanted_version(ask)
    validation = await service_of(ask).validate(
        ask.path("id"), force=ask.body.force, actor=ask.caller.actor, version=version
    )
    return json_response(masked_validation(msgspec.to_builtins(validation), ask.site.masker))


async def resume_job(ask: ApiRequest[NoParameters, ResumeRequest]) -> Response:
    service, job_id, version = service_of(ask), ask.path("id"), await wanted_version(ask)
    if ask.body.dry_run:
        units_to_run = [one async for one in service.to_run(job_id, version=version)]
        units = sum(one.run for one in units_to_run)
        ask.audit_entry.result["units"] = units
        sample = msgspec.to_builtins([masked_unit(one, ask.site.masker) for one in units_to_run[:_NAMED]])
        return json_response({"id": job_id, "how": "nothing", "units": units, "dry_run": True, "sample": sample})
    why = ask.body.reason or "resumed on request"
    outcome = await service.resume(job_id, actor=ask.caller.actor, reason=why, version=version)
    ask.audit_entry.result |= {"dry_run": False, "units": outcome.units}
    return json_response({**msgspec.to_builtins(outcome), "dry_run": False, "sample": []})


async def _report(ask: ApiRequest[Any, Any]) -> BatchReport:
    return await shown_report(service_of(ask), ask.path("id"), ask.site.masker)


def _of(path: str, handler: Any, summary: str, type_: Any, **more: Any) -> ApiOperation:
    return ApiOperation(
        method=more.pop("method", "GET"),
        path=f"/jobs/{{id}}/{path}",
        handler=handler,
        scope=more.pop("scope", "read"),
        tag="batches",
        summary=summary,
        answers={200: ApiResponse(description=more.pop("description", type_.__doc__.split("\n")[0]), type=type_)},
        refusals=(404, *more.pop("refusals", ())),
        **more,
    )


OPERATIONS = (
    _of("batch", get_batch, "Get the status of a batch", BatchStatusView),
    _of("report", get_report, "Get the report of a batch", BatchReport),
    _of("map", get_map, "Get the map of the parameter sets of a batch by outcome", HeatMap, query=MapQuery),
    _of("outputs", list_outputs, "List the outputs of a batch with their states", OutputPage, query=OutputQuery),
    _of(
        "validate",
        validate_job,
        "Validate all outputs of a batch now",
        Validation,
        method="POST",
        scope="operate",
        body=ValidateRequest,
        refusals=(409,),
        if_match="may",
    ),
    _of(
        "resume",
        resume_job,
        "Run the units of a batch again whose outputs are missing or corrupt",
        ResumeResult,
        method="POST",
        scope="operate",
        body=ResumeRequest,
        refusals=(409,),
        if_match="may",
    ),
)
