"""Masking of secrets in payloads, results and parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set as AbstractSet
from typing import Any
from urllib.parse import unquote

from .secret_cache import SecretCache

MASK = "***"
#: the password of `scheme://user:password@host`. It begins at `://` and ends before a slash, so a text is read once
_URL_PASSWORD = re.compile(r"(://[^\s/?#:@]*:)([^\s/?#]+)@")
#: the characters outside of ASCII that become ASCII letters when case is folded: `_words` reads `paßword` as `password`
_FOLDED = tuple(
    each.encode()
    for each in "\xdf\u0130\u0149\u017f\u01f0\u1e96\u1e97\u1e98\u1e99\u1e9a\u1e9e\u212a"
    "\ufb00\ufb01\ufb02\ufb03\ufb04\ufb05\ufb06"
)
#: the words of `dbPassword`, `DB-PASSWORD`, `db_password2`, `APIKey`, `api_key`, `sessionIDs`
_WORDS = re.compile(r"[A-Z]{2,}s(?![^\W\d_A-Z])|[A-Z]+(?=[A-Z][^\W\d_A-Z])|[A-Z]*[^\W\d_A-Z]+|[A-Z]+|\d+")
#: an s at the end of a word, but not of short ones, nor of `pass`
_PLURAL = re.compile(r"(?<=[^\W_][^\Ws_])s(?![^\W_])")
#: names that contain the name of a secret and are harmless: amounts and kinds
_HARMLESS = (
    *("token_count", "token_limit", "token_type", "token_usage", "max_token", "min_token", "num_token", "total_token"),
    *("prompt_token", "completion_token", "input_token", "output_token", "cached_token"),
    *("password_length", "auth_method", "auth_type"),
)
#: other words do not end in these, so they are also found in `accesstoken`
_TAILS = frozenset(("password", "passwd", "passphrase", "secret", "token", "apikey", "credential"))
#: the part of the name of a unit, or of its folder, without parameters: its seed, its address, its file
_TAIL = re.compile(r"(?:-s-?\d+)?(?:-[0-9a-f]{20})?(?:/[^/]*)?$")
#: shorter values occur in unrelated words
_SHORTEST = 4
#: the most different values that are searched for in texts
MOST_SECRETS = 200
#: how many names are cached, and their longest
_KNOWN, _LONGEST = 4096, 100
#: types that contain further values
_BRANCHES = frozenset((dict, list, tuple))


class Masker:
    """Masks the values of secret fields, at any depth: those with one of the given names as words of their own name.

    >>> Masker(("password", "api_key")).mask({"user": "ann", "dbPasswords": "x", "keys": [{"API-Key": 1}]})
    {'user': 'ann', 'dbPasswords': '***', 'keys': [{'API-Key': '***'}]}
    """

    def __init__(self, fields: Iterable[str] = (), *, shows: bool = True, urls: bool = True) -> None:
        """`urls`: passwords in URLs are masked as well."""
        named = {name for name in map(_words, fields) if name}
        # also as one word: `apikey`
        names = named | {name.replace("_", "") for name in named}
        self._secret = _any_of(names, tails=names & _TAILS)
        self._harmless = _any_of(set(map(_words, _HARMLESS)) - names)
        self._needles = None if any(not name.isascii() for name in named) else _needles(named)
        self._known: dict[str, bool] = {}
        self._urls = urls
        self.hides = bool(named) or urls
        """False: nothing is masked"""
        self.searched = SecretCache()
        """results of searches for secrets in payloads"""
        self.shows = shows
        """False: payloads are not shown at all"""

    def mask(self, value: Any) -> Any:
        """The data with masked values."""
        if type(value) is dict:
            found = {}
            known = self._known
            for key, each in value.items():
                hides = known.get(key)
                if self._hides(key) if hides is None else hides:
                    found[key] = MASK
                elif type(each) in _BRANCHES:
                    found[key] = self.mask(each)
                else:
                    found[key] = self.text(each) if type(each) is str and "://" in each else each
            return found
        if type(value) in _BRANCHES:
            kinds = set(map(type, value))
            if not kinds.isdisjoint(_BRANCHES):
                return [self.mask(each) for each in value]
            # only leaves: a long list of numbers is not walked
            return [self.text(each) if type(each) is str else each for each in value] if str in kinds else list(value)
        return self.text(value) if type(value) is str else value

    def text(self, text: str) -> str:
        """A text with masked passwords in URLs.

        >>> Masker().text("no answer from https://bob:pa55word@example.org/x")
        'no answer from https://bob:***@example.org/x'
        """
        return _URL_PASSWORD.sub(rf"\1{MASK}@", text) if self._urls and "://" in text else text

    def may_hide(self, stored: bytes) -> bool:
        """Whether this MessagePack may contain a secret; False is certain. It searches the bytes, which takes a
        fraction of the time of decoding."""
        if self._urls and b"://" in stored:
            return True
        if self._needles is None:
            return True
        lowered = stored.lower()
        if any(all(word in lowered for word in words) for words in self._needles):
            return True
        return bool(self._needles) and any(each in stored for each in _FOLDED)

    def params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Masked parameters of a batch. Where payloads are hidden, only the names are shown."""
        found: dict[str, Any] = self.mask(dict(params)) if self.shows else dict.fromkeys(params, MASK)
        return found

    def unit(self, name: str) -> str:
        """The masked name of a unit, or path of its output. The name does not show where a value ends, so the rest of
        the name is masked as well.

        >>> Masker(("api_key",)).unit("alpha=1_api_key=sk-1_beta=0.2-s7"), Masker(("api_key",)).unit("beta=0.2-s7")
        ('alpha=1_api_key=***-s7', 'beta=0.2-s7')
        """
        folder = name.rfind("/", 0, name.rfind("/")) + 1
        end = _TAIL.search(name, folder)
        last = len(name) if end is None else end.start()
        begin = folder if not self.shows and "=" in name else self._begin(name, folder, last)
        return name if begin is None else f"{name[:begin]}{MASK}{name[last:]}"

    def secrets(self, value: Any) -> tuple[str, ...]:
        """The values that `mask` hides, as they may occur in a text, longest first. At most one more than
        `MOST_SECRETS`."""
        found: set[str] = set()
        for secret in self._hidden(value):
            found.update(text for text in _texts(secret) if len(text) >= _SHORTEST)
            if len(found) > MOST_SECRETS:
                break
        return tuple(sorted(found, key=lambda text: (-len(text), text)))

    def _begin(self, name: str, start: int, end: int) -> int | None:
        """Where the first secret value begins."""
        for position in range(start, end):
            if name[position] in "=-" and self._hides(name[start:position]):
                return position + 1
            if name[position] == "=":
                start = position + 1
        return None

    def _hidden(self, value: Any) -> Iterator[Any]:
        if type(value) is dict:
            known = self._known
            for key, each in value.items():
                hides = known.get(key)
                if self._hides(key) if hides is None else hides:
                    yield from _leaves(each)
                elif type(each) in _BRANCHES or (type(each) is str and "://" in each):
                    yield from self._hidden(each)
        elif type(value) in _BRANCHES:
            kinds = set(map(type, value))
            if not kinds.isdisjoint(_BRANCHES) or str in kinds:
                for each in value:
                    if type(each) in _BRANCHES or (type(each) is str and "://" in each):
                        yield from self._hidden(each)
        elif type(value) is str and self._urls:
            for _, password in _URL_PASSWORD.findall(value):
                yield password
                yield unquote(password)

    def _hides(self, key: Any) -> bool:
        if not isinstance(key, str):
            return False
        known = self._known.get(key)
        if known is None:
            known = self._secret.search(self._harmless.sub("_", f"_{_words(key)}_")) is not None
            # every row of a page has the same few names
            if len(key) <= _LONGEST and len(self._known) < _KNOWN:
                self._known[key] = known
        return known


def _words(name: str) -> str:
    """The words of a name in a normal form: lower case, singular.

    >>> _words("dbPasswords"), _words("X-API-Key"), _words("access")
    ('db_password', 'x_api_key', 'access')
    """
    return _PLURAL.sub("", "_".join(_WORDS.findall(name)).casefold())


def _needles(names: AbstractSet[str]) -> tuple[tuple[bytes, ...], ...]:
    """For each name, the words that a field must contain to be hidden; without names that others cover."""
    words = {tuple(sorted({word.encode() for word in name.split("_")})) for name in names}
    return tuple(sorted(each for each in words if not any(set(other) < set(each) for other in words)))


def _any_of(names: AbstractSet[str], *, tails: AbstractSet[str] = frozenset()) -> re.Pattern[str]:
    """A pattern for whole words between underscores, and for words that end in a tail. Without names it matches
    nothing."""
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
    """The forms of a value in messages: as it is, as Python prints it, and its lines."""
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
