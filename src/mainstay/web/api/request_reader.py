"""Decoding of queries and bodies into their declared types. A refusal names the field."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from functools import cache
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from ...errors import InvalidInput, UnknownOption
from ..problems import Problem
from .fields import RULES
from .operation import MSGPACK, ApiOperation

S = TypeVar("S", bound=msgspec.Struct)

_AT = re.compile(r" - at `(?:key in )?\$(.*)`$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_PATTERN = re.compile(r"Expected `str(?: \| null)?` matching regex '(.*)'", re.DOTALL)
_INDEX = re.compile(r"\[[^\]]*\]")
_SHOWN = 100
#: by the pattern as it is in the messages of msgspec
_RULES = {repr(pattern)[1:-1]: rule for pattern, rule in RULES.items()}


def read_query(request: Request, operation: ApiOperation) -> tuple[str | None, Any]:
    """The name of the store, and the query as it is declared."""
    lists = _lists(operation.query)
    known = lists.keys() | {"store"} if operation.in_store else lists.keys()
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise _unknown(name, known)
        if lists.get(name):
            given.setdefault(name, []).extend(value.split(","))
        elif name in given:
            raise InvalidInput(name, "is given twice; give it once")
        else:
            given[name] = value
    store = given.pop("store", None)
    try:
        query = msgspec.convert(given, operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise refusal(str(error), operation.query) from None
    for name, value in given.items():
        if getattr(query, name) is None:
            raise InvalidInput(name, f"{value!r} is not a value; leave it out")
    return store, query


async def read_body(request: Request, operation: ApiOperation) -> Any:
    """The body as it is declared; None if the operation has none."""
    data = await (request.body() if operation.body_limit is None else _limited_body(request, operation.body_limit))
    declared = operation.body
    if declared is None:
        if data:
            raise Problem(400, "invalid_input", f"{operation.method} {operation.path} takes no body")
        return None
    media = request.headers.get("content-type", "")
    if operation.packs and media.strip().lower() == MSGPACK:
        return _read_msgpack(data, declared)
    return read_json(data, media, declared)


async def _limited_body(request: Request, most: int) -> bytes:
    """The body; a larger one is refused by its length, or while it is read."""
    refused = Problem(413, "body_too_large", f"the body is too large; at most {most:,} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise refused
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > most:
            raise refused
    return bytes(data)


def read_json(data: bytes, media: str, declared: type[S]) -> S:
    """A body of that media type as it is declared; an empty body is an empty object."""
    if data or media:
        _check_media(media)
    try:
        body: S = _decoder(declared).decode(data or b"{}")
    except msgspec.ValidationError as error:
        raise refusal(str(error), declared) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        detail = _half_character(data) or f"the body is not JSON: {error}"
        raise Problem(400, "malformed_json", detail) from None
    except RecursionError:
        raise Problem(400, "malformed_json", "the body is nested too deeply") from None
    return body


def _half_character(data: bytes) -> str:
    """The error of a body whose text is not Unicode; empty if it is. The decoder would report such a body as cut off,
    or as malformed."""
    try:
        json.dumps(json.loads(data), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        return (
            f"the body contains text that is not Unicode: \\u{half:04x} is half of a character, without the other half"
        )
    except (ValueError, RecursionError):
        pass
    return ""


def _read_msgpack(data: bytes, declared: type[S]) -> S:
    try:
        body: S = _unpacker(declared).decode(data)
    except msgspec.ValidationError as error:
        raise refusal(str(error), declared) from None
    except (ValueError, OverflowError, RecursionError) as error:
        detail = str(error) or "it is nested too deeply"
        raise Problem(400, "malformed_msgpack", f"the body is not MessagePack: {detail}") from None
    return body


def refusal(message: str, to: Any) -> InvalidInput:
    """A message of msgspec as an error of ours: the field, and the rule.

    >>> str(refusal("Expected `int`, got `str` - at `$.limit`", None))
    'limit: expected int, got str'
    """
    match = _AT.search(message)
    rule, path = (message[: match.start()], match[1].lstrip(".")) if match else (message, "")
    if unknown := _UNKNOWN.fullmatch(rule):
        return _under(path, _unknown(unknown[1], _fields_at(to, path)))
    if missing := _MISSING.fullmatch(rule):
        return _under(path, InvalidInput(missing[1], "is required, and missing"))
    if pattern := _PATTERN.fullmatch(rule):
        rule = _RULES.get(pattern[1], rule)
    rule = rule.replace("`", "").replace(" | null", "")
    return InvalidInput(path or "body", rule[:1].lower() + rule[1:].removesuffix("."))


def _check_media(media: str) -> None:
    name, _, parameters = media.partition(";")
    if name.strip().lower() == "application/json" and parameters.strip().lower() in ("", "charset=utf-8"):
        return
    raise Problem(
        415,
        "unsupported_media_type",
        f"the body must be JSON in UTF-8, sent with Content-Type: application/json, not {media[:_SHOWN]!r}",
        headers={"Accept": "application/json"},
    )


def _under(path: str, error: InvalidInput) -> InvalidInput:
    error.field = f"{path}.{error.field}".lstrip(".")
    error.args = (f"{error.field}: {error.rule}",)
    return error


def _unknown(name: str, known: Collection[str]) -> InvalidInput:
    if not known:
        return InvalidInput(name[:_SHOWN], "unknown; no parameters are allowed")
    return UnknownOption(name[:_SHOWN], known)


@cache
def _decoder(declared: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(declared)


@cache
def _unpacker(declared: type[msgspec.Struct]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(declared)


@cache
def _lists(declared: type[msgspec.Struct]) -> dict[str, bool]:
    """The parameters, and whether each takes several values: repeated, or separated by commas."""
    return {field.name: _is_list(field.type) for field in msgspec.structs.fields(declared)}


def _is_list(annotation: Any) -> bool:
    if getattr(annotation, "__origin__", None) is list:
        return True
    return any(_is_list(each) for each in getattr(annotation, "__args__", ()))


def _fields_at(to: Any, path: str) -> list[str]:
    """The fields of the struct at a path."""
    for step in filter(None, _INDEX.sub("", path).split(".")):
        inner = next((field.type for field in msgspec.structs.fields(to) if field.encode_name == step), None)
        to = _struct_in(inner)
        if to is None:
            return []
    return [field.encode_name for field in msgspec.structs.fields(to)]


def _struct_in(annotation: Any) -> Any:
    """The struct in `list[Struct]`, `Struct | None`, `Annotated[Struct, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    inner = (_struct_in(each) for each in getattr(annotation, "__args__", ()))
    return next((each for each in inner if each is not None), None)
