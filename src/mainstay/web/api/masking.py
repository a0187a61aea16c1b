"""What of people's data is shown, and what is not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

MASK = "***"
#: the words of `dbPassword`, `DB-PASSWORD`, `db_password2`, `APIKey`, `api_key`, `sessionIDs`
_WORDS = re.compile(r"[A-Z]{2,}s(?![^\W\d_A-Z])|[A-Z]+(?=[A-Z][^\W\d_A-Z])|[A-Z]*[^\W\d_A-Z]+|[A-Z]+|\d+")
#: an s at the end of a word, but not of short ones, nor of `pass`
_PLURAL = re.compile(r"(?<=[^\W_][^\Ws_])s(?![^\W_])")
#: what is no secret although one is named in it: amounts, and kinds
_HARMLESS = (
    *("token_count", "token_limit", "token_type", "token_usage", "max_token", "min_token", "num_token", "total_token"),
    *("prompt_token", "completion_token", "input_token", "output_token", "cached_token"),
    *("password_length", "auth_method", "auth_type"),
)
#: no other word ends in these, so they are found in `accesstoken`, too
_TAILS = frozenset(("password", "passwd", "passphrase", "secret", "token", "apikey", "credential"))
#: of the name of a unit or of its folder, what holds no parameter: its seed, its address, its file
_TAIL = re.compile(r"(?:-s-?\d+)?(?:-[0-9a-f]{20})?(?:/[^/]*)?$")
#: shorter ones are found in words that have nothing to do with them
_SHORTEST = 4
#: names that are remembered, and their letters
_KNOWN, _LONGEST = 4096, 100


class Masker:
    """Shows data without the fields that are to be kept from eyes: with one of these names as words of theirs, at any
    depth.

    >>> Masker(("password", "api_key")).mask({"user": "ann", "dbPasswords": "x", "keys": [{"API-Key": 1}]})
    {'user': 'ann', 'dbPasswords': '***', 'keys': [{'API-Key': '***'}]}
    """

    def __init__(self, fields: Iterable[str] = (), *, shows: bool = True) -> None:
        named = {name for name in map(_words, fields) if name}
        # `apikey` is a word, too
        names = named | {name.replace("_", "") for name in named}
        self._secret = _any_of(names, tails=names & _TAILS)
        self._harmless = _any_of(set(map(_words, _HARMLESS)) - names)
        self._known: dict[str, bool] = {}
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
            if name[place] == "=":
                start = place + 1
        return None

    def _hidden(self, value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for key, each in value.items():
                yield from _leaves(each) if self._hides(key) else self._hidden(each)
        elif isinstance(value, list | tuple):
            for each in value:
                yield from self._hidden(each)

    def _hides(self, key: Any) -> bool:
        if not isinstance(key, str):
            return False
        known = self._known.get(key)
        if known is None:
            known = self._secret.search(self._harmless.sub("_", f"_{_words(key)}_")) is not None
            # the same few come again and again, in every row of a page
            if len(key) <= _LONGEST and len(self._known) < _KNOWN:
                self._known[key] = known
        return known


def _words(name: str) -> str:
    """The words of a name, in one spelling for all: without case, and not in the plural.

    >>> _words("dbPasswords"), _words("X-API-Key"), _words("access")
    ('db_password', 'x_api_key', 'access')
    """
    return _PLURAL.sub("", "_".join(_WORDS.findall(name)).casefold())


def _any_of(names: AbstractSet[str], *, tails: AbstractSet[str] = frozenset()) -> re.Pattern[str]:
    """Finds whole words between underscores, and words that end in a tail. No names: nothing."""
    either = [*sorted(map(re.escape, names)), *(f"[^_]*{tail}" for tail in sorted(tails))]
    return re.compile(f"_(?:{'|'.join(either)})(?=_)" if either else "(?!)")


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
