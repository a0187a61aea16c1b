"""From an exception to `ErrorInfo`: data of bounded size."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..errors import MainstayError
from ..model import ErrorInfo
from .trace import trace_text

#: control characters, line separators, and lone surrogates, which cannot be encoded
_CONTROLS = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 8_000
_NAME_LIMIT = 200


def error_info(error: BaseException, *, retryable: bool | None = None) -> ErrorInfo:
    """The error of a failed attempt as data.

    An exception may declare whether a retry can help (`retryable = False`), and have a stable `code`.

    >>> error_info(ValueError("no such address")).message
    'no such address'
    """
    try:
        message = str(error)
    except Exception as raised:  # noqa: BLE001 - a broken __str__ must not hide the failure
        message = f"(its message could not be read: {type(raised).__name__})"
    declared = getattr(error, "retryable", None)
    code = getattr(error, "code", None)
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return bounded(
        ErrorInfo(
            type=name,
            message=message,
            code=code if isinstance(code, str) and (isinstance(error, MainstayError) or code.isascii()) else "error",
            traceback=_trace(error),
            retryable=retryable if retryable is not None else declared if isinstance(declared, bool) else None,
        )
    )


def one_line(text: str) -> str:
    """The text on one line, for a log or a terminal: line breaks and control characters are escaped.

    >>> print(one_line("no\\nsuch \\x1b[31maddress\\0"))
    no\\nsuch \\x1b[31maddress\\x00
    """
    return text if text.isprintable() else _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


def bounded(error: ErrorInfo) -> ErrorInfo:
    """The error within the limits: a long traceback loses its middle, where the loops are."""
    error = _as_declared(error)
    fits = (
        len(error.type) <= _NAME_LIMIT
        and len(error.code) <= _NAME_LIMIT
        and len(error.message) <= MESSAGE_LIMIT
        and (error.traceback is None or len(error.traceback) <= TRACEBACK_LIMIT)
    )
    text = f"{error.type}{error.code}{error.message}{error.traceback or ''}"
    if fits and storable(text):
        return error
    return msgspec.structs.replace(
        error,
        type=storable_text(error.type)[:_NAME_LIMIT],
        code=storable_text(error.code)[:_NAME_LIMIT],
        message=_trimmed(storable_text(error.message), MESSAGE_LIMIT),
        traceback=None if error.traceback is None else _trimmed(storable_text(error.traceback), TRACEBACK_LIMIT),
    )


def _as_declared(error: ErrorInfo) -> ErrorInfo:
    """The error with the declared types: structs do not check them, but a stored row must be readable."""
    odd: dict[str, Any] = {
        name: shown(value, MESSAGE_LIMIT)
        for name in ("type", "message", "code", "traceback")
        if not isinstance(value := getattr(error, name), str) and not (name == "traceback" and value is None)
    }
    retryable: object = error.retryable
    if retryable is not None and not isinstance(retryable, bool):
        odd["retryable"] = None
    return msgspec.structs.replace(error, **odd) if odd else error


def _trace(error: BaseException) -> str | None:
    if error.__traceback__ is None:
        return None
    try:
        return trace_text(error)
    except Exception:  # noqa: BLE001 - formatting runs code of the exception
        return None


def _trimmed(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    cut = f"\n... {len(text) - limit} characters left out ...\n"
    half = (limit - len(cut)) // 2
    return text[:half] + cut + text[-half:]


def storable(text: str) -> bool:
    """Whether a text can be encoded: lone surrogates (of undecodable file names, for example) cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable_text(text: str) -> str:
    """The text with lone surrogates escaped, so that it can be stored."""
    return text.encode(errors="backslashreplace").decode()


def shown(value: object, limit: int = 100) -> str:
    """Any value in a message: storable, and of bounded length. Its `repr` may run user code and fail."""
    try:
        return storable_text(repr(value)[:limit])
    except Exception:  # noqa: BLE001 - a broken __repr__, or a number too long to print
        return f"(a {type(value).__name__} that cannot be shown)"
