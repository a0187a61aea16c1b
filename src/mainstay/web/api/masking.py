"""What of people's data is shown, and what is not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MASK = "***"
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^0-9A-Za-z]+")


class Masker:
    """Shows data without the fields that are to be kept from eyes: of that name, or ending in it, at any depth.

    >>> Masker(("password", "api_key")).mask({"user": "ann", "dbPassword": "x", "keys": [{"API-Key": 1}]})
    {'user': 'ann', 'dbPassword': '***', 'keys': [{'API-Key': '***'}]}
    """

    def __init__(self, fields: Iterable[str] = (), *, shows: bool = True) -> None:
        self._fields = tuple(_plain(field) for field in fields)
        self.shows = shows
        """False: nothing of a payload is shown, masked or not"""

    def mask(self, value: Any) -> Any:
        """The same data with those values masked."""
        if isinstance(value, dict):
            return {key: MASK if self._hides(key) else self.mask(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.mask(each) for each in value]
        return value

    def _hides(self, key: Any) -> bool:
        return isinstance(key, str) and _plain(key).endswith(self._fields)


def _plain(name: str) -> str:
    """One spelling for all: `dbPassword`, `DB-PASSWORD` and `db_password` are the same; a part of a word is not."""
    return "_" + _WORDS.sub("_", name).strip("_").lower()
