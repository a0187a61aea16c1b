"""Options as an adapter keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ..model import Options

T = TypeVar("T")
S = TypeVar("S", bound=bytes | str)

_MOST = 256


class OfOptions(Generic[T]):
    """What is made of options. Jobs submitted alike share theirs, so the last few are remembered.

    >>> from mainstay.model import Options
    >>> tags = OfOptions(lambda options: options.tags)
    >>> tags(Options(tags=("red",)))
    ('red',)
    """

    def __init__(self, make: Callable[[Options], T]) -> None:
        self._make = make
        self._made: dict[int, tuple[Options, T]] = {}

    def __call__(self, options: Options) -> T:
        known = self._made.get(id(options))
        if known is not None:
            return known[1]
        made = self._make(options)
        if len(self._made) >= _MOST:
            self._made.clear()
        self._made[id(options)] = (options, made)  # holding it keeps its id from being reused
        return made


class OptionsCodec(Generic[S]):
    """Options out and in."""

    def __init__(self, encode: Callable[[Options], S], decode: Callable[[S], Options]) -> None:
        self.encode: OfOptions[S] = OfOptions(encode)
        self._decode = decode
        self._known: dict[S, Options] = {}

    def decode(self, stored: S) -> Options:
        known = self._known.get(stored)
        if known is None:
            known = self._decode(stored)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[stored] = known
        return known
