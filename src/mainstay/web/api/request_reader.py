"""From what was sent to what was declared. Whatever it is, it is read or refused, and the refusal names the field."""

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
#: by the pattern as msgspec says it
_RULES = {repr(pattern)[1:-1]: rule for pattern, rule in RULES.items()}


def read_query(request: Request, operation: ApiOperation) -> tuple[str | None, Any]:
    """The store that is named, and the rest as it was declared."""
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
        read = msgspec.convert(given, operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise refusal(str(error), operation.query) from None
    for name, value in given.items():
        if getattr(read, name) is None:
            raise InvalidInput(name, f"{value!r} is not a value; leave it out")
    return store, read


async def read_body(request: Request, operation: ApiOperation) -> Any:
    """The body as it was declared; None where none is taken."""
    data = await request.body()
    declared = operation.body
    if declared is None:
        if data:
            raise Problem(400, "invalid_input", f"{operation.method} {operation.path} takes no body; send none")
        return None
    said = request.headers.get("content-type", "")
    if operation.packs and said.strip().lower() == MSGPACK:
        return _read_msgpack(data, declared)
    return read_json(data, said, declared)


def read_json(data: bytes, said: str, declared: type[S]) -> S:
    """A body of that media type as it was declared; none at all is an empty object."""
    if data or said:
        _check_media(said)
    try:
        found: S = _decoder(declared).decode(data or b"{}")
    except msgspec.ValidationError as error:
        raise refusal(str(error), declared) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        said = _half_character(data) or f"the body is not JSON: {error}"
        raise Problem(400, "malformed_json", said) from None
    except RecursionError:
        raise Problem(400, "malformed_json", "the body is nested too deeply") from None
    return found


def _half_character(data: bytes) -> str:
    """What is wrong with a body whose text is no Unicode; empty if that is not what is wrong. The decoder takes such a
    text for one that was cut off, or for no JSON at all."""
    try:
        json.dumps(json.loads(data), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        return f"the body holds text that is not Unicode: \\u{half:04x} is half of a character, without the other half"
    except (ValueError, RecursionError):
        pass
    return ""


def _read_msgpack(data: bytes, declared: type[S]) -> S:
    try:
        found: S = _unpacker(declared).decode(data)
    except msgspec.ValidationError as error:
        raise refusal(str(error), declared) from None
    except (ValueError, OverflowError, RecursionError) as error:
        said = str(error) or "it is nested too deeply"
        raise Problem(400, "malformed_msgpack", f"the body is not MessagePack: {said}") from None
    return found


def refusal(message: str, to: Any) -> InvalidInput:
    """What was refused in our words: the field, and what would be accepted.

    >>> str(refusal("Expected `int`, got `str` - at `$.limit`", None))
    'limit: expected int, got str'
    """
    found = _AT.search(message)
    said, path = (message[: found.start()], found[1].lstrip(".")) if found else (message, "")
    if unknown := _UNKNOWN.fullmatch(said):
        return _under(path, _unknown(unknown[1], _fields_at(to, path)))
    if missing := _MISSING.fullmatch(said):
        return _under(path, InvalidInput(missing[1], "is missing, and is needed"))
    if pattern := _PATTERN.fullmatch(said):
        said = _RULES.get(pattern[1], said)
    said = said.replace("`", "").replace(" | null", "")
    return InvalidInput(path or "body", said[:1].lower() + said[1:].removesuffix("."))


def _check_media(said: str) -> None:
    media, _, parameters = said.partition(";")
    if media.strip().lower() == "application/json" and parameters.strip().lower() in ("", "charset=utf-8"):
        return
    raise Problem(
        415,
        "unsupported_media_type",
        f"the body is to be JSON in UTF-8, sent with Content-Type: application/json, not {said[:_SHOWN]!r}",
        headers={"Accept": "application/json"},
    )


def _under(path: str, error: InvalidInput) -> InvalidInput:
    error.field = f"{path}.{error.field}".lstrip(".")
    error.args = (f"{error.field}: {error.rule}",)
    return error


def _unknown(name: str, known: Collection[str]) -> InvalidInput:
    if not known:
        return InvalidInput(name[:_SHOWN], "unknown; there are none here")
    return UnknownOption(name[:_SHOWN], known)


@cache
def _decoder(declared: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(declared)


@cache
def _unpacker(declared: type[msgspec.Struct]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(declared)


@cache
def _lists(declared: type[msgspec.Struct]) -> dict[str, bool]:
    """The parameters, and whether each takes several values: given again, or with commas."""
    return {field.name: _is_list(field.type) for field in msgspec.structs.fields(declared)}


def _is_list(found: Any) -> bool:
    if getattr(found, "__origin__", None) is list:
        return True
    return any(_is_list(each) for each in getattr(found, "__args__", ()))


def _fields_at(to: Any, path: str) -> list[str]:
    """The fields of the struct that a path leads to."""
    for step in filter(None, _INDEX.sub("", path).split(".")):
        inner = next((field.type for field in msgspec.structs.fields(to) if field.encode_name == step), None)
        to = _struct_in(inner)
        if to is None:
            return []
    return [field.encode_name for field in msgspec.structs.fields(to)]


def _struct_in(found: Any) -> Any:
    """The struct in `list[Struct]`, `Struct | None`, `Annotated[Struct, ...]`."""
    if isinstance(found, type) and issubclass(found, msgspec.Struct):
        return found
    inner = (_struct_in(each) for each in getattr(found, "__args__", ()))
    return next((each for each in inner if each is not None), None)
