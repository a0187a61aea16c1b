"""The body of a POST, read as the arguments of a task."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any, Union, cast

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request

from ...errors import InvalidInput
from ...web import Problem
from ...web.api import read_json
from .. import Task

_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class TaskBody:
    """The signature of a task as the type of a body: an object with its arguments by name."""

    def __init__(self, task: Task[..., Any], *, limit: int) -> None:
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for parameter in inspect.signature(task.function).parameters.values():
            if parameter.kind not in _BY_NAME:
                raise InvalidInput(
                    f"{task.name}.{parameter.name}",
                    "cannot be given by name, as a field of the body; make it a named parameter",
                )
            kind = task.annotation(parameter.name)
            if parameter.default is Parameter.empty:
                fields.append((parameter.name, kind))
            else:
                # `|` is not defined for every annotation
                fields.append((parameter.name, Union[kind, UnsetType], UNSET))  # noqa: UP007
        body_type: Any = msgspec.defstruct(
            f"Arguments of {task.name}", fields, kw_only=True, forbid_unknown_fields=True, module=__name__
        )
        self.type = cast("type[msgspec.Struct]", body_type)
        self._limit = limit

    async def read(self, request: Request) -> dict[str, Any]:
        """The given arguments; raises `InvalidInput` with the field, and `Problem`."""
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > self._limit:
                raise Problem(413, "body_too_large", f"the body is larger than {self._limit:,} bytes")
        body = read_json(bytes(data), request.headers.get("content-type", ""), self.type)
        return {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}


__all__ = ["TaskBody"]
