"""Options of a store's URL, read in the same way by every adapter. An error names the bad option."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..clock import seconds
from ..errors import InvalidInput, UnknownOption


def number_of(options: Mapping[str, str], name: str, default: int, *, least: int, most: int) -> int:
    """
    >>> number_of({"pool": "8"}, "pool", 4, least=1, most=1000)
    8
    """
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise InvalidInput(name, f"{text!r} is not a whole number from {least} to {most}")
    return int(text)


def duration_of(options: Mapping[str, str], name: str, default: str) -> float:
    """In seconds, more than zero."""
    duration_s = seconds(options.get(name, default), field=name)
    if duration_s <= 0:
        raise InvalidInput(name, "must be more than zero")
    return duration_s


def is_on(options: Mapping[str, str], name: str, *, default: str = "off") -> bool:
    value = options.get(name, default).lower()
    if value not in ("on", "off", "yes", "no"):
        raise InvalidInput(name, f"{value!r} is neither on nor off")
    return value in ("on", "yes")


def check_options(options: Iterable[str], known: Iterable[str] = ()) -> None:
    allowed = frozenset(known)
    for name in options:
        if name not in allowed:
            raise UnknownOption(name, allowed)
