"""What of people's data is shown, and what is not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MASK = "***"
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^0-9A-Za-z]+")
#: of the name of a unit or of its folder, what holds no parameter: its seed, its address, its file
_TAIL = re.compile(r"(?:-s-?\d+)?(?:-[0-9a-f]{20})?(?:/[^/]*)?$")
#: shorter ones are found in words that have nothing to do with them
_SHORTEST = 4


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

    def params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of a batch: they are its payload, so where none is shown, only their names are."""
        found: dict[str, Any] = self.mask(dict(params)) if self.shows else dict.fromkeys(params, MASK)
        return found

    def unit(self, name: str) -> str:
        """The name of a unit, or the path of its output. Where a value ends cannot be told from the name, so all
        that follows is masked with it.

        >>> Masker(("api_key",)).unit("alpha=1_api_key=sk-1_beta=0.2-s7"), Masker(("api_key",)).unit("beta=0.2-s7")
        ('alpha=1_api_key=***-s7', 'beta=0.2-s7')
        """
        folder = name.rfind("/", 0, name.rfind("/")) + 1
        end = _TAIL.search(name, folder)
        last = len(name) if end is None else end.start()
        begin = folder if not self.shows and "=" in name else self._begin(name, folder, last)
        return name if begin is None else f"{name[:begin]}{MASK}{name[last:]}"

    def secrets(self, value: Any) -> tuple[str, ...]:
        """The values that `mask` hides, as they may stand in a text; longest first."""
        found = {text for secret in self._hidden(value) for text in _texts(secret) if len(text) >= _SHORTEST}
        return tuple(sorted(found, key=lambda text: (-len(text), text)))

    def _begin(self, name: str, start: int, end: int) -> int | None:
        """Where the first value begins that is to be masked."""
        for place in range(start, end):
            if name[place] in "=-" and self._hides(name[start:place]):
                return place + 1
        return None

    def _hidden(self, value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for key, each in value.items():
                yield from _leaves(each) if self._hides(key) else self._hidden(each)
        elif isinstance(value, list | tuple):
            for each in value:
                yield from self._hidden(each)

    def _hides(self, key: Any) -> bool:
        return isinstance(key, str) and _plain(key).endswith(self._fields)


def _plain(name: str) -> str:
    """One spelling for all: `dbPassword`, `DB-PASSWORD` and `db_password` are the same; a part of a word is not."""
    return "_" + _WORDS.sub("_", name).strip("_").lower()


def _leaves(value: Any) -> Iterator[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
    if inner is None:
        yield value
        return
    for each in inner:
        yield from _leaves(each)


def _texts(secret: Any) -> Iterator[str]:
    """How a value is written in messages: as it is, as Python shows it, and by its lines."""
    if secret is None or isinstance(secret, bool):
        return
    if isinstance(secret, bytes):
        yield repr(secret)[2:-1]
        yield secret.decode("utf-8", "replace")
        return
    text = str(secret)
    yield text
    yield repr(text)[1:-1]
    yield from (line.strip() for line in text.splitlines())
