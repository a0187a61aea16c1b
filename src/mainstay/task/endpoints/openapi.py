"""What an endpoint offers, for the OpenAPI description of the app that it is part of."""

from __future__ import annotations

from typing import Any

import msgspec

from ...web.api.job_responses import ProblemView
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
    "description": "What is sent again with the same key is done once.",
}
_LOCATION = {"Location": {"schema": {"type": "string"}}, "Retry-After": {"schema": {"type": "integer"}}}


# their names stand beside those of the app, so they say whose they are
class JobProgress(msgspec.Struct, kw_only=True):
    done: float
    total: float | None = None
    message: str | None = None


class JobAccepted(msgspec.Struct, kw_only=True):
    """It is under way."""

    id: str
    status: str
    location: str
    """the status URL"""


class JobSeen(msgspec.Struct, kw_only=True):
    """How far it is."""

    id: str
    status: str
    progress: JobProgress | None
    created_ms: int
    started_ms: int | None


class JobProblem(ProblemView, kw_only=True):
    """Why it was refused, or failed."""

    id: str | None = None
    job_status: str | None = None


def described(task: Task[..., Any], body: type[msgspec.Struct], path: str, *, embeds: bool) -> dict[str, Any]:
    """`paths` and `components` of an OpenAPI 3.1 description."""
    (arguments, returns, accepted, seen, problem), components = msgspec.json.schema_components(
        [body, task.returns, JobAccepted, JobSeen, JobProblem], ref_template=_REFS
    )
    refused = {"default": {"description": "It was refused, or it failed.", "content": {_PROBLEM: {"schema": problem}}}}
    name = task.name
    leads = (
        {"200": _answer("The result.", {"allOf": [seen], "properties": {"result": returns}})}
        if embeds
        else {"303": {"description": "It has ended: the result is there.", "headers": _LOCATION}}
    )
    still = {"200": _answer("How far it is.", seen)} | leads
    return {
        "paths": {
            path or "/": {
                "post": {
                    "operationId": f"{name}.submit",
                    "summary": f"Begin {name}",
                    "parameters": [_PREFER, _KEY],
                    "requestBody": {"required": bool(task.required), "content": {_JSON: {"schema": arguments}}},
                    "responses": {"202": {**_answer("It is under way.", accepted), "headers": _LOCATION}}
                    | leads
                    | refused,
                }
            },
            f"{path}/{{id}}": {
                "get": {
                    "operationId": f"{name}.status",
                    "summary": f"How far {name} is",
                    "parameters": [_ID, _PREFER],
                    "responses": still | refused,
                },
                "delete": {
                    "operationId": f"{name}.cancel",
                    "summary": f"Cancel {name}",
                    "parameters": [_ID, _PREFER],
                    "responses": {
                        "202": _answer("It was asked to stop.", seen),
                        "204": {"description": "It is cancelled."},
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


def _answer(told: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": told, "content": {_JSON: {"schema": schema}}}


__all__ = ["described"]
