"""Operation: one thing that can be asked of the API. What routes, checks and describes it is this one record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...control import Control
from ...control.json_view import ExtensionValue
from ..audit import AuditEntry
from ..caller import Caller, Scope
from ..services import WebServices
from ..stores import ServedStore
from ..threads import in_thread

Q = TypeVar("Q")
B = TypeVar("B")

#: what JSON cannot say is said in this: bytes, times, keys that are no text
MSGPACK = "application/msgpack"
PACKED = "With `Accept: application/msgpack` values keep their types; JSON has bytes as base64, and times as text."


def _kept(value: object) -> object:
    """What MessagePack can say as it was, and else as text."""
    return value.value if isinstance(value, ExtensionValue) else str(value)


_encode = msgspec.json.Encoder(enc_hook=str).encode
_pack = msgspec.msgpack.Encoder(enc_hook=_kept).encode


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters; an empty body."""


class ApiRequest(Generic[Q, B]):
    """A request that was let in and read."""

    def __init__(
        self,
        site: WebServices,
        request: Request,
        caller: Caller,
        served: ServedStore,
        query: Q,
        body: B,
        deed: AuditEntry,
    ) -> None:
        self.site = site
        self.request = request
        self.caller = caller
        self.served = served
        self.query = query
        self.body = body
        self.deed = deed
        """what is written of it in the audit log, if it is an operator's"""

    @property
    def control(self) -> Control:
        """The rules of the store that is meant; what is submitted is submitted in the caller's name."""
        return self.served.control_as(self.caller.actor)

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def told(self, data: Any, status: int = 200, **headers: str) -> Response:
        """An answer with values of the user in it: as MessagePack to whoever asks for it, which keeps their types."""
        if not _wants_msgpack(self.request):
            return json_response(data, status, Vary="Accept", **headers)
        return Response(_pack(data), status, {"Vary": "Accept", **_named(headers)}, MSGPACK)

    async def shown(self, make: Callable[[], Any], size: int, **headers: str) -> Response:
        """The same for values of any size: a large answer is made and encoded beside the event loop."""
        return await in_thread(lambda: self.told(make(), 200, **headers), size)


class ApiResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One way an operation is answered."""

    description: str
    type: Any = None
    """what the body is made of; None: it has none"""
    headers: Mapping[str, str] = {}
    """name -> what it says"""
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
    """None: it takes none. One whose fields all have defaults may be left out"""
    answers: Mapping[int, ApiResponse]
    refusals: tuple[int, ...] = ()
    """beside those that any operation has"""
    if_match: Literal["", "may", "must"] = ""
    """whether a change may, or must, name the version of the job that it is meant for"""
    if_none_match: bool = False
    idempotency_key: bool = False
    packs: bool = False
    """its body is taken, or its answer given, as MessagePack as well"""
    in_store: bool = True
    """it is about one store, which `?store=` names"""

    @property
    def id(self) -> str:
        """A name for it, as clients that are generated call it."""
        return self.handler.__name__


def json_response(data: Any, status: int = 200, **headers: str) -> Response:
    """An answer in JSON. Headers are written with `_` for `-`."""
    return Response(_encode(data), status, _named(headers), "application/json")


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _wants_msgpack(request: Request) -> bool:
    """Whether it is named; a wildcard means JSON."""
    given = ",".join(request.headers.getlist("accept")).split(",")
    return any(media.partition(";")[0].strip().lower() == MSGPACK for media in given)
