"""What every adapter refuses at its door, beside bad keys, and how it makes a version."""

from __future__ import annotations

import os

from ...errors import InvalidInput
from ...storage.keys import check_prefix

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


def check_listing(prefix: str, after: str, limit: int) -> None:
    """What `list_keys` is asked for. `after` need not be a key that is there."""
    check_prefix(prefix)
    check_prefix(after, field="after")
    if not (isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= MOST_KEYS):
        raise InvalidInput("limit", f"{limit!r} is not a whole number from 1 to {MOST_KEYS}")


def new_version() -> str:
    """A version that nobody has given before and nobody will give again.

    It comes from the system and not from an injected source: a forked process, or a test with the same seed, would
    draw the same ones again, and a backup that was restored would count up to them once more.
    """
    return os.urandom(16).hex()
