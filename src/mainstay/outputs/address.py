"""Units and their addresses: the same study, code, parameters and seed always have the same address.

The address is a SHA-256 over the four in msgpack, keys sorted, floats by their 64 bits. It does not depend on the
process, the version of Python or the order of a dict. `1` and `1.0` are different parameters, as are `0.0` and `-0.0`.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from ..errors import InvalidInput

#: digested first: names this way to make an address
_FORM = "mainstay unit 1"
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_DEEPEST = 20
_UNSAFE = re.compile(r"[^A-Za-z0-9.=_-]+")
_READABLE = 60
#: characters at the end of a shortened label that make it different from others
_SUFFIX = 9


class Unit(msgspec.Struct, frozen=True, dict=True, eq=False):
    """One set of parameters with one seed, of one study, by one version of its code.

    >>> unit = Unit("sir", "2024-10", {"gamma": 0.1, "beta": 0.3}, 7)
    >>> unit == Unit("sir", "2024-10", {"beta": 0.3, "gamma": 0.1}, 7)
    True
    >>> unit.address[:16], unit.readable
    ('e8a22e206f518fa8', 'beta=0.3_gamma=0.1-s7')
    """

    study: str
    code: str
    """the version of the code: changes with everything that changes results"""
    params: Mapping[str, Any]
    seed: int | None = None
    """None: not of a single seed, for example an aggregation over all of them"""

    def __post_init__(self) -> None:
        for field, text in (("study", self.study), ("code", self.code)):
            if not isinstance(text, str) or not text:
                raise InvalidInput(field, f"{text!r} is not a name; give a text that is not empty")
        if not isinstance(self.params, Mapping):
            raise InvalidInput("params", f"a {type(self.params).__name__} is not a mapping of names to values")
        msgspec.structs.force_setattr(self, "params", _plain(self.params, "params", 0))
        if self.seed is not None:
            msgspec.structs.force_setattr(self, "seed", _whole(self.seed, "seed"))

    @cached_property
    def address(self) -> str:
        """64 hexadecimal digits."""
        parts = [_FORM, self.study, self.code, self.params, self.seed]
        return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()

    @property
    def readable(self) -> str:
        """Its parameters and its seed as part of a path: shortened, with safe characters only. Not unique; for people
        use the `label`."""
        return (slug(self._text) if self._text else "unit") + self._seeded

    @property
    def label(self) -> str:
        """Its parameters and its seed for people. If it is shortened or has unprintable characters, it ends with digits
        of the address, so that two units of a study do not look the same.

        >>> Unit("sir", "1", {"city": "北京"}, 7).label
        'city=北京-s7'
        >>> Unit("sir", "1", {"text": "x" * 100}, 7).label
        'text=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx~322ce446-s7'
        """
        text = "".join(c if c.isprintable() else "?" for c in self._text)
        if text != self._text or len(text) > _READABLE:
            text = f"{text[: _READABLE - _SUFFIX]}~{self.address[: _SUFFIX - 1]}"
        return (text or "unit") + self._seeded

    @property
    def _text(self) -> str:
        return "_".join(f"{name}={_shown(value)}" for name, value in self.params.items())

    @property
    def _seeded(self) -> str:
        return "" if self.seed is None else f"-s{self.seed}"

    def __str__(self) -> str:
        return f"unit {self.label} of {self.study}"

    def __eq__(self, other: object) -> bool:
        # by the address: Python takes 1 and 1.0 as equal, and a simulation may not
        return isinstance(other, Unit) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)


@lru_cache(maxsize=10_000)
def slug(text: str) -> str:
    """A text as part of a path: with characters that any storage can hold, and not too long.

    >>> slug("Größe: R0 > 2"), slug("../..")
    ('Gr-e-R0-2', 'x')
    """
    return _UNSAFE.sub("-", text).lstrip("._-")[:_READABLE].rstrip(".-") or "x"


def _shown(value: object) -> str:
    # paths depend on how Python writes a float: that is part of the language and will not change
    if isinstance(value, float):
        return repr(value).replace("e+", "e")
    if type(value) is int:
        return str(value)
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":")).replace("e+", "e")


def _plain(value: object, field: str, depth: int) -> Any:
    """A value made of plain types only, in a fixed order. The error for another value names its field."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, field)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(field, f"{value} is not a finite number; it would never be equal to itself, or to data")
        return float(value)
    if depth > _DEEPEST:
        raise InvalidInput(field, f"it is nested more than {_DEEPEST} deep")
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise InvalidInput(field, f"the name {name!r} is not a text; names of parameters are")
            _text(name, field)
        return {str(name): _plain(value[name], f"{field}.{name}", depth + 1) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{field}[{place}]", depth + 1) for place, item in enumerate(value)]
    return _whole(value, field)


def _text(value: str, field: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(field, f"{value!r} cannot be written as UTF-8") from None
    return str(value)


def _whole(value: Any, field: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise InvalidInput(
            field,
            f"a {type(value).__name__} cannot be part of an address; use texts, whole numbers, floats, booleans, None, "
            "lists and mappings of them",
        ) from None
    if not _INT_MIN <= number <= _INT_MAX:
        raise InvalidInput(field, f"{number} does not fit into 64 bits; write it as a text")
    return number
