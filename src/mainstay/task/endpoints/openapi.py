"""The OpenAPI description of an endpoint, for the app that it is part of."""

from __future__ import annotations

from typing import Any

import msgspec

from ...model import Progress
from ...web.api import ProblemView
from .. import Task

_REFS = "#/components/schemas/{name}"
_JSON, _PROBLEM = "application/json", "application/problem+json"
_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}
_PREFER = {
    "name": "Prefer",
    "in": "header",
    "schema": {"type": "string"},
    "example": "wait=5",
    "description": "wait=N: answer when the job has ended, or after N seconds.",
}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
    "description": "A repeated request with the same key is the same job.",
}
_LOCATION = {"Location": {"schema": {"type": "string"}}, "Retry-After": {"schema": {"type": "integer"}}}


# their names appear beside those of the app, so they begin with Job
class JobProgress(Progress, frozen=True, kw_only=True):
    """The progress of the job."""


class JobAccepted(msgspec.Struct, kw_only=True):
    """The job was accepted."""

    id: str
    status: str
    location: str
    """the status URL"""


class JobStatus(msgspec.Struct, kw_only=True):
    """The status and progress of the job."""

    id: str
    status: str
    progress: JobProgress | None
    created_ms: int
    started_ms: int | None


class JobProblem(ProblemView, kw_only=True):
    """Why the request was refused, or the job failed."""

    id: str | None = None
    job_status: str | None = None


def described(task: Task[..., Any], body: type[msgspec.Struct], path: str, *, embeds: bool) -> dict[str, Any]:
    """`paths` and `components` of an OpenAPI 3.1 description."""
    (arguments, returns, accepted, seen, problem), components = msgspec.json.schema_components(
        [body, task.returns, JobAccepted, JobStatus, JobProblem], ref_template=_REFS
    )
    refused = {
        "default": {
            "description": "The request was refused, or it failed.",
            "content": {_PROBLEM: {"schema": problem}},
        }
    }
    name = task.name
    leads = (
        {"200": _answer("The result.", {"allOf": [seen], "properties": {"result": returns}})}
        if embeds
        else {"303": {"description": "The job has ended; the result is at the location.", "headers": _LOCATION}}
    )
    still = {"200": _answer("The status of the job.", seen)} | leads
    return {
        "paths": {
            path or "/": {
                "post": {
                    "operationId": f"{name}.submit",
                    "summary": f"Submit {name}",
                    "parameters": [_PREFER, _KEY],
                    "requestBody": {"required": bool(task.required), "content": {_JSON: {"schema": arguments}}},
                    "responses": {"202": {**_answer("The job was accepted.", accepted), "headers": _LOCATION}}
                    | leads
                    | refused,
                }
            },
            f"{path}/{{id}}": {
                "get": {
                    "operationId": f"{name}.status",
                    "summary": f"Status of {name}",
                    "parameters": [_ID, _PREFER],
                    "responses": still | refused,
                },
                "delete": {
                    "operationId": f"{name}.cancel",
                    "summary": f"Cancel {name}",
                    "parameters": [_ID, _PREFER],
                    "responses": {
                        "202": _answer("The job was asked to stop.", seen),
                        "204": {"description": "The job is cancelled."},
                    }
                    | refused,
                },
            },
            f"{path}/{{id}}/result": {
                "get": {
                    "operationId": f"{name}.result",
                    "summary": f"The result of {name}",
                    "parameters": [_ID, _PREFER],
                    "responses": {"200": _answer("The result.", returns)} | refused,
                }
            },
        },
        "components": {"schemas": components},
    }


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {_JSON: {"schema": schema}}}


__all__ = ["described"]
