"""Which code made an output: its version is part of the output's address, a digest of its source is kept beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import InvalidInput
from .source_digest import source_digest


class Code(NamedTuple):
    """The code of a function."""

    version: str
    """part of the address of what it makes"""
    source: str
    """a digest of the function and of what it depends on in its project; empty: it cannot be read"""


def code_of(function: Callable[..., Any], given: str | None, *, name: str) -> Code:
    """The version given, or a digest of the function's source and of what it depends on (`source_digest`)."""
    if given is not None and (not isinstance(given, str) or not given or len(given) > 100):
        raise InvalidInput("version", f"{given!r} is not a version; give a text of 1 to 100 characters")
    try:
        source = source_digest(function)
    except (OSError, TypeError, SyntaxError):
        if given is None:
            raise InvalidInput(
                "version", f'the text of {name} cannot be read here, so say which version it is: version="1"'
            ) from None
        source = ""
    return Code(given or source, source)
