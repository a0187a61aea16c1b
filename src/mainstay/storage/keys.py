"""The keys that any storage can hold: folders, buckets, tables and subjects."""

from __future__ import annotations

import re

from ..errors import InvalidInput

LONGEST = 512
_PART = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*")


def check_key(key: str, *, field: str = "key") -> str:
    """Return the key; refuse one that some storage could not hold.

    >>> check_key("jobs/v1/0198-a.json")
    'jobs/v1/0198-a.json'
    >>> check_key("../jobs")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: key: '../jobs' is not a key: parts of letters, digits and . _ = -, none of them \
beginning with a dot, with / between them
    """
    if not (isinstance(key, str) and len(key) <= LONGEST and all(_PART.fullmatch(part) for part in key.split("/"))):
        raise InvalidInput(
            field,
            f"{key!r} is not a key: parts of letters, digits and . _ = -, none of them beginning with a dot, "
            f"with / between them"
            + (f", and at most {LONGEST} characters" if isinstance(key, str) and len(key) > LONGEST else ""),
        )
    return key


def check_prefix(prefix: str, *, field: str = "prefix") -> str:
    """Return the beginning of a key, which may end within a part or be empty; refuse any other text."""
    if prefix != "":
        whole = isinstance(prefix, str) and prefix.endswith("/") and not prefix.endswith("//")
        check_key(prefix[:-1] if whole else prefix, field=field)
    return prefix
