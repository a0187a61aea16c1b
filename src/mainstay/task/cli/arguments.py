"""The arguments of a job as users type them: `key=value`, or JSON.

A value that is not JSON is text. If the task is known, its annotation decides: `to=42` is the text "42" for a `str` and
the number for an `int`.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...cli import InvalidUsage, key_value
from ...errors import InvalidInput
from .. import Signature
from ..type_errors import place_and_rule

STDIN = "-"
T = TypeVar("T", bound=msgspec.Struct)

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class TypedArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments by name, as typed."""

    data: Mapping[str, bytes] = {}
    """JSON"""
    texts: Mapping[str, str] = {}
    """`key=value`; they override the others"""

    def plain(self) -> dict[str, Any]:
        """The values, without declared types.

        >>> TypedArguments(texts={"n": "3", "to": "ann"}).plain()
        {'n': 3, 'to': 'ann'}
        """
        data = {name: msgspec.json.decode(value) for name, value in self.data.items()}
        return {**data, **{name: _from_text(text, Any) for name, text in self.texts.items()}}

    def typed(self, signature: Signature) -> dict[str, Any]:
        """The values as a task, or a job of another kind, declares them; raises `InvalidInput` with the field."""
        raw_values: dict[str, bytes | str] = {**self.data, **self.texts}
        known = signature.keywords
        # unknown names are refused before missing ones: often one is the other, misspelt
        for name in raw_values if known is not None else ():
            if name not in (known or ()):
                raise _unknown_argument(signature.name, name, name, known or ())
        values: dict[str, Any] = {}
        for name, raw in raw_values.items():
            try:
                values[name] = _value(raw, signature.annotation(name))
            except msgspec.ValidationError as error:
                place, rule = place_and_rule(str(error))
                inner = f"{'' if place.startswith('[') else '.'}{place}" if place else ""
                raise InvalidInput(f"{signature.name}.{name}{inner}", rule) from None
        return values

    def struct(self, kind: type[T], *, of: str) -> T:
        """The values as the fields of a struct; `name.key=value` is an entry of a mapping."""
        hints = {field.name: field.type for field in msgspec.structs.fields(kind) if field.name != "schema"}
        values: dict[str, Any] = {}
        raw_values: dict[str, bytes | str] = {**self.data, **self.texts}
        for path, raw in raw_values.items():
            name, dot, key = path.partition(".")
            if name not in hints or (dot and not key):
                raise _unknown_argument(of, path, name, hints)
            if dot:
                values.setdefault(name, {})[key] = raw if isinstance(raw, str) else msgspec.json.decode(raw)
            else:
                values[name] = _struct_value(raw, hints[name], f"{of}.{name}")
        try:
            return msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            place, rule = place_and_rule(str(error))
            raise InvalidInput(f"{of}.{place}" if place else of, rule) from None


def read(words: Sequence[str], args: str | None, args_file: str | None) -> TypedArguments:
    """Read the arguments from `key=value` words, `-` for JSON from stdin, `--args` or `--args-file`."""
    texts: dict[str, str] = {}
    sources = [(source, field) for source, field in ((args, "args"), (args_file, "args-file")) if source is not None]
    for word in words:
        if word == STDIN:
            sources.append((STDIN, STDIN))
            continue
        name, value = key_value(word, field="arguments")
        if name in texts:
            raise InvalidInput(f"arguments.{name}", "is given twice")
        texts[name] = value
    if len(sources) > 1:
        raise InvalidInput("arguments", f"give one of {' and '.join(field for _, field in sources)}, not both")
    if not sources:
        return TypedArguments(texts=texts)
    ((source, field),) = sources
    text = source.encode() if field == "args" else _content(source, field)
    return TypedArguments(data=read_object(text, field), texts=texts)


def read_object(text: bytes, field: str) -> dict[str, bytes]:
    """A JSON object with its values still encoded.

    >>> read_object(b'[1]', "args")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: args: must be a JSON object of arguments by name ...
    """
    try:
        return {name: bytes(value) for name, value in _object(text).items()}
    except msgspec.ValidationError:
        raise InvalidInput(field, 'must be a JSON object of arguments by name, like {"to": "a@b.c"}') from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(field, f"is not JSON: {error}") from None


def _unknown_argument(of: str, path: str, name: str, known: Collection[str]) -> InvalidUsage:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known) or 'none'}"
    return InvalidUsage(f"{of}.{path}", f"{of} has no argument {path!r}; {hint}")


def _value(raw: bytes | str, kind: Any) -> Any:
    return _from_text(raw, kind) if isinstance(raw, str) else msgspec.json.decode(raw, type=kind)


def _struct_value(raw: bytes | str, kind: Any, field: str) -> Any:
    try:
        return _value(raw, kind)
    except msgspec.ValidationError as error:
        # a list with one item may be typed without brackets
        if isinstance(raw, str):
            with contextlib.suppress(msgspec.ValidationError):
                return msgspec.convert([raw], kind)
        raise InvalidInput(field, place_and_rule(str(error))[1]) from None


def _from_text(text: str, kind: Any) -> Any:
    try:
        # directly into the type: through a float, a Decimal would lose digits
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        try:
            return msgspec.convert(text, kind, strict=False)
        except msgspec.ValidationError:
            raise error from None
    except (msgspec.DecodeError, UnicodeEncodeError):
        return msgspec.convert(text, kind, strict=False)


def _content(source: str, field: str) -> bytes:
    if source == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise InvalidInput(field, f"{source!r} cannot be read: {error.strerror}") from None
