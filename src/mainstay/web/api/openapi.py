"""The OpenAPI 3.1 description of the API, made from the declarations that route and check requests."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import msgspec

from . import versions
from .fields import JobId, Name, Text, Worker
from .job_responses import ProblemView
from .operation import ApiOperation, ApiResponse

_REFS = "#/components/schemas/{name}"
_PATH = {"id": JobId, "name": Name, "worker": Worker}
_PROBLEM = "application/problem+json"
_REFUSED = {
    400: "The request could not be read.",
    401: "Not authenticated.",
    403: "Not allowed.",
    404: "Not found.",
    408: "The body did not arrive in time.",
    409: "The current state does not allow it.",
    412: "The job has changed since that version.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A value is not valid; `field` names it.",
    428: "If-Match is required.",
    429: "Too many requests: Retry-After says when to try again.",
    500: "A bug of the server; its log has the error under `id`.",
    503: "The store does not answer, or there are too many connections: Retry-After says when to try again.",
}
_KEY = (
    "A job that is submitted twice with the same key, task and payload is stored once, whatever its options. "
    "Another payload with the same key is refused (409). Keys of different tasks are independent."
)
_ANY = (400, 401, 403, 422, 429, 500, 503)
_PARAMETER = re.compile(r"{(\w+)}")


def described(operations: Sequence[ApiOperation], *, stores: Sequence[str]) -> dict[str, Any]:
    """The description for a server of these stores; the first is the default."""
    types = list(_types(operations))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFS)
    made = dict(zip(map(id, types), schemas, strict=True))
    for kind in _structs(types):
        _explain(kind, components)
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, made, stores)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Mainstay",
            "version": version("mainstay"),
            "description": "Jobs over HTTP. Errors are application/problem+json, and their `type` is a stable code.",
        },
        "servers": [{"url": "/api/v1"}],
        "security": [{"token": []}],
        "paths": _published(paths),
        "components": {
            "schemas": {_named(name): _published(schema) for name, schema in components.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "An API token."}},
        },
    }


def _named(name: str) -> str:
    """The name of a schema: `JobView` is described as `Job`."""
    return name.removesuffix("View")


def _published(schema: Any) -> Any:
    """A schema with these names in its references."""
    if isinstance(schema, list):
        return [_published(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {name: _named(schema[name]) for name in ("$ref", "title") if isinstance(schema.get(name), str)}
    return {name: _published(each) for name, each in schema.items()} | renamed


def _types(operations: Iterable[ApiOperation]) -> Iterable[Any]:
    yield ProblemView
    yield from _PATH.values()
    yield Text
    for operation in operations:
        if operation.body is not None:
            yield operation.body
        for answered in operation.answers.values():
            if answered.type is not None:
                yield answered.type


def _operation(operation: ApiOperation, made: dict[int, Any], stores: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": f"{operation.about} Needs the scope `{operation.scope}`.".strip(),
        "parameters": list(_parameters(operation, made, stores)),
        "responses": {str(status): _answer(each, made) for status, each in operation.answers.items()},
    }
    for status in sorted({*_ANY, *operation.refusals, *_more(operation)}):
        found["responses"].setdefault(
            str(status),
            {"description": _REFUSED[status], "content": {_PROBLEM: {"schema": made[id(ProblemView)]}}},
        )
    if operation.body is not None:
        needed = any(field.required for field in msgspec.structs.fields(operation.body))
        schema = made[id(operation.body)]
        found["requestBody"] = {"required": needed, "content": {"application/json": {"schema": schema}}}
    return found


def _more(operation: ApiOperation) -> Iterable[int]:
    """Refusals that follow from the declaration of the operation."""
    if operation.body is not None:
        yield from (408, 413, 415)
    if operation.if_match:
        yield 412
    if operation.if_match == "must":
        yield 428


def _answer(answered: ApiResponse, made: dict[int, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answered.description}
    if answered.type is not None:
        found["content"] = {answered.media: {"schema": made[id(answered.type)]}}
    if answered.headers:
        found["headers"] = {
            name: {"description": about, "schema": {"type": "string"}} for name, about in answered.headers.items()
        }
    return found


def _parameters(operation: ApiOperation, made: dict[int, Any], stores: Sequence[str]) -> Iterable[dict[str, Any]]:
    for name in _PARAMETER.findall(operation.path):
        yield {"name": name, "in": "path", "required": True, "schema": made[id(_PATH[name])]}
    if operation.in_store:
        named = {"type": "string", "enum": list(stores), "default": stores[0]}
        yield {"name": "store", "in": "query", "description": "Name of the store.", "schema": named}
    yield from _query(operation.query)
    if operation.idempotency_key:
        yield _header("Idempotency-Key", _KEY, made[id(Text)])
    if operation.if_none_match:
        yield _header("If-None-Match", "The ETag of your copy.", {"type": "string"})
    if operation.if_match:
        tag = {"type": "string", "pattern": versions.PATTERN, "examples": ['"7"']}
        about = "The ETag of the job version that the change is meant for, several of them, or *."
        yield _header("If-Match", about, tag) | {"required": operation.if_match == "must"}


def _query(declared: type[msgspec.Struct]) -> Iterable[dict[str, Any]]:
    schema = msgspec.json.schema(declared)["$defs"][declared.__name__]
    docs = _docs(declared)
    for name, each in schema["properties"].items():
        found = {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": _given(each)}
        if name in docs:
            found["description"] = docs[name]
        if found["schema"].get("type") == "array":
            found |= {"style": "form", "explode": True}
        yield found


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter, which can be left out but cannot be null."""
    schema = {name: value for name, value in schema.items() if name != "default" or value is not None}
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else schema


def _header(name: str, about: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": about, "schema": schema}


def _structs(types: Iterable[Any]) -> Iterable[type[msgspec.Struct]]:
    """All structs in these types."""
    seen: set[Any] = set()
    todo = list(types)
    while todo:
        kind = todo.pop()
        todo += getattr(kind, "__args__", ())
        if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct) or kind in seen:
            continue
        seen.add(kind)
        todo += [field.type for field in msgspec.structs.fields(kind)]
        yield kind


def _explain(kind: type[msgspec.Struct], components: dict[str, Any]) -> None:
    """Add the docstrings of its fields to its schema."""
    properties = components.get(kind.__name__, {}).get("properties", {})
    for name, doc in _docs(kind).items():
        if name in properties:
            # OpenAPI 3.1 allows a description beside a reference
            properties[name] = {**properties[name], "description": doc}


def _docs(kind: type) -> dict[str, str]:
    """Field -> its docstring, of a struct and its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= _docs_in(base.__module__).get(base.__name__, {})
    return found


@cache
def _docs_in(module: str) -> dict[str, dict[str, str]]:
    """The same for each class of a module."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    return {each.name: dict(_below(each.body)) for each in tree.body if isinstance(each, ast.ClassDef)}


def _below(body: Sequence[ast.stmt]) -> Iterable[tuple[str, str]]:
    for field, doc in pairwise(body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(doc, ast.Expr):
            continue
        text = doc.value.value if isinstance(doc.value, ast.Constant) else None
        if isinstance(field.target, ast.Name) and isinstance(text, str):
            yield field.target.id, " ".join(text.split())
