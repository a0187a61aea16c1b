"""Operations of the API: one declaration routes, checks and describes an operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...control import Control, ExtensionValue
from ..audit import AuditEntry
from ..caller import Caller, Scope
from ..services import WebServices
from ..stores import ServedStore
from ..threads import in_thread

Q = TypeVar("Q")
B = TypeVar("B")

#: keeps types that JSON lacks: bytes, times, keys that are not text
MSGPACK = "application/msgpack"
PACKED = "With `Accept: application/msgpack` values keep their types; in JSON, bytes are base64 and times are text."


def _to_packable(value: object) -> object:
    """A value that MessagePack supports as it is, any other as text."""
    return value.value if isinstance(value, ExtensionValue) else str(value)


_encode = msgspec.json.Encoder(enc_hook=str).encode
_pack = msgspec.msgpack.Encoder(enc_hook=_to_packable).encode


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters; an empty body."""


class ApiRequest(Generic[Q, B]):
    """A request of an admitted caller, decoded."""

    def __init__(
        self,
        site: WebServices,
        request: Request,
        caller: Caller,
        served: ServedStore,
        query: Q,
        body: B,
        audit_entry: AuditEntry,
    ) -> None:
        self.site = site
        self.request = request
        self.caller = caller
        self.served = served
        self.query = query
        self.body = body
        self.audit_entry = audit_entry
        """its line in the audit log, if its scope is audited"""

    @property
    def control(self) -> Control:
        """The rules of the store, with the caller as the actor."""
        return self.served.control_as(self.caller.actor)

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def _response(self, data: Any, status: int = 200, **headers: str) -> Response:
        """A response with values of the user: as MessagePack, which keeps their types, if the client accepts it."""
        if not _wants_msgpack(self.request):
            return json_response(data, status, Vary="Accept", **headers)
        return Response(_pack(data), status, {"Vary": "Accept", **_named(headers)}, MSGPACK)

    async def respond(self, make: Callable[[], Any], size: int, **headers: str) -> Response:
        """A response with values of the user. A large one is made and encoded beside the event loop."""
        return await in_thread(lambda: self._response(make(), 200, **headers), size)


class ApiResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One response of an operation."""

    description: str
    type: Any = None
    """type of the body; None: no body"""
    headers: Mapping[str, str] = {}
    """name -> description"""
    media: str = "application/json"


class ApiOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Callable[[ApiRequest[Any, Any]], Awaitable[Response]]
    scope: Scope
    summary: str
    about: str = ""
    tag: str
    query: type[msgspec.Struct] = NoParameters
    body: type[msgspec.Struct] | None = None
    """None: no body. If all its fields have defaults, a request may omit it"""
    answers: Mapping[int, ApiResponse]
    refusals: tuple[int, ...] = ()
    """statuses of errors, beside those of every operation"""
    if_match: Literal["", "may", "must"] = ""
    """whether a request may, or must, name the version of the job that it is meant for"""
    if_none_match: bool = False
    idempotency_key: bool = False
    packs: bool = False
    """it also accepts its body, or sends its response, as MessagePack"""
    in_store: bool = True
    """it works on one store, which `?store=` names"""
    body_limit: int | None = None
    """the most bytes of its body; None: the limit of the server"""
    limited: bool = True
    """False: it does not count for the rate of its caller, who must be able to stop what it has started"""
    audits: bool = True
    """False: the audit log has only its refusals, since it is one step of an operation that is logged"""

    @property
    def id(self) -> str:
        """Its name for generated clients."""
        return self.handler.__name__


def json_response(data: Any, status: int = 200, **headers: str) -> Response:
    """A response in JSON. Headers are written with `_` for `-`."""
    return Response(_encode(data), status, _named(headers), "application/json")


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _wants_msgpack(request: Request) -> bool:
    """Whether the client accepts it by name; a wildcard means JSON."""
    given = ",".join(request.headers.getlist("accept")).split(",")
    return any(media.partition(";")[0].strip().lower() == MSGPACK for media in given)
