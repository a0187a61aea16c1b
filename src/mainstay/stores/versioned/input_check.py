"""Checks of arguments that every adapter makes, beside those of keys; and new versions."""

from __future__ import annotations

import os

from ...errors import InvalidInput
from ...storage import check_prefix

MOST_KEYS = 10_000


def check_value(value: bytes) -> bytes:
    """
    >>> check_value("text")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: value: a str is not bytes; encode it first
    """
    if not isinstance(value, bytes):
        raise InvalidInput("value", f"a {type(value).__name__} is not bytes; encode it first")
    return value


def check_version(version: str) -> str:
    if not isinstance(version, str):
        raise InvalidInput("version", f"a {type(version).__name__} is not a version; use the one that was read")
    return version


def check_listing(prefix: str, after: str, limit: int) -> None:
    """Check the arguments of `list_keys`. `after` need not be an existing key."""
    check_prefix(prefix)
    check_prefix(after, field="after")
    if not (isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= MOST_KEYS):
        raise InvalidInput("limit", f"{limit!r} is not a whole number from 1 to {MOST_KEYS}")


def new_version() -> str:
    """A version that was never used before and is never used again.

    It comes from the operating system: a forked process would draw the same versions again from a seeded source, and a
    counter would repeat them after a backup is restored. Only simulations, whose stores do not outlive them, give the
    stores in memory and in a folder another source.
    """
    return os.urandom(16).hex()
