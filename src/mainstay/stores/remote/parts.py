"""Bodies that are on their way in parts: bounded in all, and for each caller, so that none removes those of another."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import msgspec

#: bytes of parts of one caller: more than the largest body
CALLER_BYTES = 96 * 1024 * 1024
_CALLER_CALLS = 64


class _Parts(msgspec.Struct, kw_only=True):
    begun_s: float
    pieces: dict[int, bytes] = {}
    size: int = 0


class PartStore:
    """The parts of calls, by caller and call. Too old ones go first, then the oldest of the caller that has most."""

    def __init__(
        self,
        *,
        now_s: Callable[[], float],
        most_bytes: int = 4 * CALLER_BYTES,
        caller_bytes: int = CALLER_BYTES,
        caller_calls: int = _CALLER_CALLS,
        kept_s: float = 120.0,
    ) -> None:
        self._now_s = now_s
        self._most = most_bytes
        self._caller_most = caller_bytes
        self._caller_calls = caller_calls
        self._kept_s = kept_s
        self._calls: dict[str, OrderedDict[str, _Parts]] = {}
        self._sizes: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Bytes of all callers."""
        return sum(self._sizes.values())

    def put(self, caller: str, call: str, number: int, data: bytes) -> None:
        """Keep a part; one that arrives again replaces the first."""
        self._forget_old(caller)
        calls = self._calls.setdefault(caller, OrderedDict())
        parts = calls.get(call)
        if parts is None:
            parts = calls[call] = _Parts(begun_s=self._now_s())
        more = len(data) - len(parts.pieces.get(number, b""))
        parts.pieces[number] = data
        parts.size += more
        self._sizes[caller] = self._sizes.get(caller, 0) + more
        while self._sizes.get(caller, 0) > self._caller_most or len(calls) > self._caller_calls:
            self._drop_oldest(caller)
        while self.size > self._most:
            self._drop_oldest(max(self._sizes, key=self._sizes.__getitem__))

    def get(self, caller: str, call: str, number: int) -> bytes | None:
        """A part; None: it is not kept."""
        calls = self._calls.get(caller)
        parts = None if calls is None else calls.get(call)
        return None if parts is None else parts.pieces.get(number)

    def take(self, caller: str, call: str) -> dict[int, bytes]:
        """The parts of a call, which are not kept any longer."""
        calls = self._calls.get(caller)
        parts = None if calls is None else calls.pop(call, None)
        if parts is None:
            return {}
        self._subtract(caller, parts.size)
        return parts.pieces

    def forget_old(self) -> None:
        """Remove what is too old, of all callers."""
        for caller in list(self._calls):
            self._forget_old(caller)

    def _forget_old(self, caller: str) -> None:
        calls = self._calls.get(caller)
        while calls and next(iter(calls.values())).begun_s <= self._now_s() - self._kept_s:
            self._drop_oldest(caller)

    def _drop_oldest(self, caller: str) -> None:
        _, parts = self._calls[caller].popitem(last=False)
        self._subtract(caller, parts.size)

    def _subtract(self, caller: str, size: int) -> None:
        self._sizes[caller] -= size
        if not self._calls[caller]:
            del self._calls[caller], self._sizes[caller]


__all__ = ["CALLER_BYTES", "PartStore"]
