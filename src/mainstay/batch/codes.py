"""The code behind an output: its version is part of the output's address, its digest is stored beside the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import InvalidInput
from .source_digest import source_digest


class Code(NamedTuple):
    """The code of a function."""

    version: str
    """part of the address of its outputs"""
    source: str
    """a digest of the function and its dependencies in the project; empty: it cannot be read"""


def code_of(function: Callable[..., Any], given: str | None, *, name: str) -> Code:
    """The given version, or a digest of the function's source and its dependencies (`source_digest`)."""
    if given is not None and (not isinstance(given, str) or not given or len(given) > 100):
        raise InvalidInput("version", f"{given!r} is not a version; use a text of 1 to 100 characters")
    try:
        source = source_digest(function)
    except (OSError, TypeError, SyntaxError):
        if given is None:
            raise InvalidInput(
                "version", f'the text of {name} cannot be read here, so name its version: version="1"'
            ) from None
        source = ""
    return Code(given or source, source)
