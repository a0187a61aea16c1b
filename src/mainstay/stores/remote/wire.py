"""The form of the store port on the bus: requests, answers, errors and the arguments of each call.

The arguments and the result of most calls follow from the signatures of the port. A change is the exception: on the
wire it names the row as the caller saw it, without its payload, and the moves; never digests or a key.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_type_hints

import msgspec

from ... import errors as _errors
from ...bus import MessageClass
from ...errors import MainstayError
from ...lifecycle import Chain, CompletionMove, Event, Move
from ...model import Job, Leadership
from ..port import Change, ChangeResult, NewJob, SealedChange
from ..proxy import StoreProxy

#: calls by the class of their messages; all others are `data`
CONTROL = frozenset(
    {
        "apply", "await_wake", "beat", "close_session", "close_wake", "drain", "get_part", "hello", "lead",
        "open_session", "open_wake", "put_part", "report", "resign", "set_limit", "set_queue",
    }
)  # fmt: skip
DISPATCH = frozenset({"insert", "claim", "tick"})
#: the read that is `control` if a cancel begins with it; then it asks for `MOST_URGENT` rows at most
URGENT = "get"


def class_of(method: str, *, urgent: bool = False) -> MessageClass:
    """The class of a call. Its subject says no more than that: a caller cannot make a read more important.

    >>> class_of("find", urgent=True), class_of("get", urgent=True)
    (<MessageClass.DATA: 'data'>, <MessageClass.CONTROL: 'control'>)
    """
    if method in CONTROL or (urgent and method == URGENT):
        return MessageClass.CONTROL
    return MessageClass.DISPATCH if method in DISPATCH else MessageClass.DATA


class StoreRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The envelope of a request."""

    v: str
    """the caller's version of Mainstay"""
    c: str
    """cluster"""
    e: str
    """environment"""
    id: str
    """drawn for each call; the same when the call is sent again"""
    a: msgspec.Raw = msgspec.Raw(b"\x80")
    """the arguments"""
    parts: int = 0
    """how many parts of the arguments were sent before; 0: they are in `a`"""
    until: int = 0
    """the time of the store after which the caller waits no longer for this try; 0: the caller does not know"""


class StoreFault(msgspec.Struct, frozen=True, kw_only=True):
    """An error as an answer carries it."""

    code: str
    message: str
    fields: dict[str, Any] = {}


class StoreAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The envelope of an answer."""

    m: str
    """the manager that answers"""
    now: int = 0
    """the time of the store"""
    lease: int = 0
    ok: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: StoreFault | None = None
    again: bool = False
    """with an error: nothing was done, and the same call may be sent again at once"""
    took: int = 0
    """for how many milliseconds the manager had the request before it took the time for `now`"""
    parts: int = 0
    """how many parts of the result wait at this manager; 0: it is in `ok`"""


class WireMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A move whose fields have lost their types."""

    to: str
    reason: str | None = None
    details: dict[str, Any] | None = None
    fields: Mapping[str, Any] = {}
    flag: str = ""
    unheld: bool = False
    completes: bool = False


class WireChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change without the payload of its row."""

    before: Job
    moves: tuple[WireMove, ...] = ()
    actor: str = ""
    at_ms: int = 0
    holder: str | None = None
    spawn: tuple[NewJob, ...] = ()
    on_last: WireMove | None = None
    sealed: SealedChange | None = None
    """a change that was kept in a file while the store was away"""


_decode_change = msgspec.msgpack.Decoder(WireChange).decode


class ApplyArguments(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of `apply`."""

    changes: list[WireChange]
    lead: Leadership | None = None
    together: bool = False


def wire_change(change: Change | SealedChange) -> WireChange:
    """A change as it is sent."""
    if isinstance(change, SealedChange):
        return WireChange(before=_without_payload(change.before), sealed=change)
    return WireChange(
        before=_without_payload(change.before),
        moves=tuple(_wire_move(move) for move in change.moves),
        actor=change.actor,
        at_ms=change.at_ms,
        holder=change.holder,
        spawn=change.spawn,
        on_last=None if change.on_last is None else _wire_move(change.on_last),
    )


def read_change(wire: WireChange, before: Job) -> Change:
    """The change, with the row that it was decided from."""
    return Change(
        before=before,
        moves=tuple(read_move(move) for move in wire.moves),
        actor=wire.actor,
        at_ms=wire.at_ms,
        holder=wire.holder,
        spawn=wire.spawn,
        on_last=None if wire.on_last is None else read_move(wire.on_last),
    )


def pack_change(change: Change) -> bytes:
    """A change to be kept in a file and sent later; the store that holds the key seals it then."""
    return encode(wire_change(change))


def unpack_change(data: bytes) -> Change:
    """The change in such a file, whose row has no payload."""
    wire = _decode_change(data)
    return read_change(wire, wire.before)


def _without_payload(job: Job) -> Job:
    return msgspec.structs.replace(job, payload=b"", result=None, checkpoint=None)


def _wire_move(move: Move) -> WireMove:
    return WireMove(
        to=move.to,
        reason=move.reason,
        details=move.details,
        fields=move.fields,
        flag=move.flag,
        unheld=move.unheld,
        completes=type(move) is CompletionMove,
    )


def read_move(wire: WireMove) -> Move:
    types = _job_types()
    fields = {name: msgspec.convert(value, types.get(name, Any)) for name, value in wire.fields.items()}
    if wire.completes:
        return CompletionMove(to=wire.to, reason=wire.reason, details=wire.details, fields=fields)
    return msgspec.convert(
        {
            "to": wire.to,
            "reason": wire.reason,
            "details": wire.details,
            "flag": wire.flag,
            "unheld": wire.unheld,
            "fields": fields,
        },
        Move,
    )


@cache
def _job_types() -> dict[str, Any]:
    return get_type_hints(Job)


def resealed(new: NewJob, chain: Chain, *, actor: str | None = None) -> NewJob:
    """A new job whose events are sealed with this chain: its sender does not have the key. The same job gets the same
    digests each time."""
    events: list[Event] = []
    head = new.job.trimmed_digest
    for event in new.events:
        changed = event if actor is None else msgspec.structs.replace(event, actor=actor)
        head = chain.digest(head, msgspec.structs.astuple(changed)[:-1])
        events.append(msgspec.structs.replace(changed, digest=head))
    return msgspec.structs.replace(new, job=msgspec.structs.replace(new.job, head=head), events=tuple(events))


# calls ---------------------------------------------------------------------------------------------


class WireCall(msgspec.Struct, frozen=True):
    """How the arguments and the result of a call are encoded."""

    names: tuple[str, ...]
    arguments: msgspec.msgpack.Decoder[Any]
    result: msgspec.msgpack.Decoder[Any]

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        return encode({**dict(zip(self.names, args, strict=False)), **kwargs})

    def decode(self, body: bytes) -> dict[str, Any]:
        values: dict[str, Any] = msgspec.structs.asdict(self.arguments.decode(body))
        return values


@cache
def wire_call(name: str) -> WireCall:
    """The form of a call of the port."""
    method = getattr(StoreProxy, name)
    hints = get_type_hints(method)
    result = hints.pop("return", None)
    if name == "apply":
        return WireCall(("changes",), _decoder(ApplyArguments), _decoder(list[ChangeResult]))
    fields: list[Any] = []
    names: list[str] = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        given = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((parameter.name, hints[parameter.name], *given))
        names.append(parameter.name)
    arguments = msgspec.defstruct(f"{name.title().replace('_', '')}Arguments", fields, kw_only=True, frozen=True)
    return WireCall(tuple(names), _decoder(arguments), _decoder(result))


def _decoder(type_: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(type_, dec_hook=_decode_hook)


def encode(value: Any) -> bytes:
    """Any argument or result as it is sent."""
    return msgspec.msgpack.encode(value, enc_hook=_encode_hook)


def _encode_hook(value: Any) -> Any:
    if isinstance(value, MainstayError):
        return fault_of(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be sent")


def _decode_hook(type_: Any, value: Any) -> Any:
    if type_ is MainstayError:
        return error_of(msgspec.convert(value, StoreFault))
    raise NotImplementedError(f"{type_!r} cannot be read")


# errors ----------------------------------------------------------------------------------------------

_PLAIN = (str, int, float, bool, type(None))


def fault_of(error: MainstayError) -> StoreFault:
    """An error as it is sent: its class by its code, and its plain attributes."""
    fields = {name: value for name, value in vars(error).items() if _is_plain(value)}
    return StoreFault(code=error.code, message=str(error), fields=fields)


def error_of(fault: StoreFault) -> MainstayError:
    """The error that was sent, of the class that was raised there."""
    kind = _error_types().get(fault.code, MainstayError)
    error = kind.__new__(kind)
    Exception.__init__(error, fault.message)
    for name, value in fault.fields.items():
        setattr(error, name, value)
    return error


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(each, _PLAIN) for each in value)
    return isinstance(value, _PLAIN)


@cache
def _error_types() -> dict[str, type[MainstayError]]:
    found = [each for each in vars(_errors).values() if isinstance(each, type) and issubclass(each, MainstayError)]
    return {each.code: each for each in reversed(found)}


__all__ = [
    "CONTROL",
    "DISPATCH",
    "URGENT",
    "ApplyArguments",
    "StoreAnswer",
    "StoreFault",
    "StoreRequest",
    "WireChange",
    "WireMove",
    "class_of",
    "encode",
    "error_of",
    "fault_of",
    "pack_change",
    "read_change",
    "resealed",
    "unpack_change",
    "wire_call",
    "wire_change",
]
