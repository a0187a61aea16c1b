"""The arguments of a job as people type them: `key=value`, or JSON.

A value is JSON if it can be read as that, and else it is text. Where the task is known, its annotation decides: `to=42`
is the text "42" for a `str` and the number for an `int`.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...cli.common import InvalidUsage
from ...errors import InvalidInput
from .. import Task
from ..type_errors import place_and_rule

STDIN = "-"
T = TypeVar("T", bound=msgspec.Struct)

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments by name, as they were written."""

    data: Mapping[str, bytes] = {}
    """JSON"""
    texts: Mapping[str, str] = {}
    """`key=value`; they go before the others"""

    def plain(self) -> dict[str, Any]:
        """As data, with nothing declared about it.

        >>> Given(texts={"n": "3", "to": "ann"}).plain()
        {'n': 3, 'to': 'ann'}
        """
        data = {name: msgspec.json.decode(value) for name, value in self.data.items()}
        return {**data, **{name: _from_text(text, Any) for name, text in self.texts.items()}}

    def typed(self, task: Task[..., Any]) -> dict[str, Any]:
        """As the task declares them; raises `InvalidInput` naming the field."""
        written: dict[str, bytes | str] = {**self.data, **self.texts}
        _check_names(task, written)
        made: dict[str, Any] = {}
        for name, value in written.items():
            kind = task.annotation(name)
            try:
                made[name] = (
                    _from_text(value, kind) if isinstance(value, str) else msgspec.json.decode(value, type=kind)
                )
            except msgspec.ValidationError as error:
                place, rule = place_and_rule(str(error))
                inner = f"{'' if place.startswith('[') else '.'}{place}" if place else ""
                raise InvalidInput(f"{task.name}.{name}{inner}", rule) from None
        return made

    def struct(self, kind: type[T], *, of: str) -> T:
        """As the fields of a struct; `name.key=value` is an entry of a mapping."""
        hints = {field.name: field.type for field in msgspec.structs.fields(kind) if field.name != "schema"}
        made: dict[str, Any] = {}
        given: dict[str, bytes | str] = {**self.data, **self.texts}
        for written, value in given.items():
            name, dot, key = written.partition(".")
            if name not in hints or (dot and not key):
                close = difflib.get_close_matches(name, hints, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(hints)}"
                raise InvalidUsage(f"{of}.{written}", f"{of} has no argument {written!r}; {hint}")
            if dot:
                made.setdefault(name, {})[key] = value if isinstance(value, str) else msgspec.json.decode(value)
            else:
                made[name] = _struct_value(value, hints[name], f"{of}.{name}")
        try:
            return msgspec.convert(made, kind)
        except msgspec.ValidationError as error:
            place, rule = place_and_rule(str(error))
            raise InvalidInput(f"{of}.{place}" if place else of, rule) from None


def read(words: Sequence[str], args: str | None, args_file: str | None) -> Given:
    """From the command line: `key=value` words, `-` for JSON from stdin, `--args` or `--args-file`."""
    texts: dict[str, str] = {}
    sources = [(source, field) for source, field in ((args, "args"), (args_file, "args-file")) if source is not None]
    for word in words:
        if word == STDIN:
            sources.append((STDIN, STDIN))
            continue
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InvalidInput("arguments", f"{word!r} is not of the form key=value")
        if name in texts:
            raise InvalidInput(f"arguments.{name}", "is given twice")
        texts[name] = value
    if len(sources) > 1:
        raise InvalidInput("arguments", f"give one of {' and '.join(field for _, field in sources)}, not both")
    if not sources:
        return Given(texts=texts)
    ((source, field),) = sources
    text = source.encode() if field == "args" else _content(source, field)
    return Given(data=read_object(text, field), texts=texts)


def read_object(text: bytes, field: str) -> dict[str, bytes]:
    """A JSON object, its values left as they are.

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


def _check_names(task: Task[..., Any], given: Iterable[str]) -> None:
    """Name what the task does not take, before anything is said to be missing: it is often the same, misspelt."""
    parameters = inspect.signature(task.function).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters if parameter.kind in _BY_NAME]
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known) or 'none'}"
            raise InvalidUsage(f"{task.name}.{name}", f"{task.name} has no argument {name!r}; {hint}")


def _struct_value(value: bytes | str, kind: Any, field: str) -> Any:
    try:
        return _from_text(value, kind) if isinstance(value, str) else msgspec.json.decode(value, type=kind)
    except msgspec.ValidationError as error:
        # one of several that may be given is written without brackets
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.convert([value], kind) if isinstance(value, str) else msgspec.json.decode(value, type=kind)
        raise InvalidInput(field, place_and_rule(str(error))[1]) from None


def _from_text(text: str, kind: Any) -> Any:
    try:
        # straight into the type: by way of a float, a Decimal would lose digits
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
