"""Retries of a request, without I/O: the clients send and wait.

A *flow* is a generator that yields an `ApiCall` to send, a `RetryPause` to make or a `Blocking` call, and returns the
result. The sync and
the async client drive the same flows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec

from ..errors import MainstayError, Overloaded, ServerUnreachable
from .calls import ApiAnswer, ApiCall
from .refusals import error_of, retry_after

T = TypeVar("T")

_TOO_MANY = 429
_AWAY = (502, 503, 504)


class RetryPause(msgspec.Struct, frozen=True):
    """A pause before the next attempt."""

    seconds: float


class Blocking(msgspec.Struct, frozen=True):
    """A call that takes a while, such as reading files; the flow gets what it returns."""

    call: Callable[[], Any]


class Lost(Exception):
    """No response came; `sent`: the request may have arrived."""

    def __init__(self, cause: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(cause)


Flow = Generator[ApiCall[Any] | RetryPause | Blocking, Any, T]


class Tries(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of retries. Times are in seconds.

    >>> Tries(jitter=False).pause(3, None, random.Random(1)), Tries().pause(1, 7.0, random.Random(1))
    (0.8, 7.0)
    """

    most: int = 6
    """the most attempts; 1: no retries"""
    refusals: int = 3
    """the most retries of a request that the server refuses because it is busy, or the caller too fast"""
    base_s: float = 0.2
    cap_s: float = 5.0
    total_s: float = 60.0
    """the longest sum of pauses; if the server asks for a longer pause, the client gives up"""
    jitter: bool = True

    def pause(self, tried: int, asked_s: float | None, rng: random.Random) -> float:
        """The pause after this many attempts; `Retry-After` of the server takes precedence."""
        if asked_s is not None:
            return asked_s
        ceiling = min(self.cap_s, self.base_s * 2 ** (tried - 1))
        return rng.uniform(0, ceiling) if self.jitter else ceiling


def carried(call: ApiCall[T], tries: Tries, rng: random.Random) -> Flow[T]:
    """Send a call, and retry it as long as that is safe."""
    paused_s, tried, refused = 0.0, 0, 0
    while True:
        tried += 1
        asked_s: float | None = None
        try:
            answer: ApiAnswer = yield call
        except Lost as lost:
            again = call.safe or not lost.sent
            error: MainstayError = ServerUnreachable(_unreachable(call, lost, again=again, tried=tried))
        else:
            if answer.status < 300 or answer.status in call.accepts:
                return call.read(answer)
            error = error_of(answer, call)
            if isinstance(error, Overloaded):
                asked_s = error.retry_after_s
            else:
                asked_s = retry_after(answer)
            is_busy = isinstance(error, Overloaded)
            if answer.status == _TOO_MANY or is_busy:
                refused += 1
                # the server refuses a whole request, but a busy store one call of it: others may have been done
                again = refused <= tries.refusals and (call.safe or not is_busy)
            else:
                again = answer.status in _AWAY and call.safe
        pause_s = tries.pause(tried, asked_s, rng)
        if not again or tried >= tries.most or paused_s + pause_s > tries.total_s:
            raise error
        paused_s += pause_s
        yield RetryPause(pause_s)


def _unreachable(call: ApiCall[Any], lost: Lost, *, again: bool, tried: int) -> str:
    path = call.path.partition("?")[0]
    attempts = f" in {tried} attempts" if tried > 1 else ""
    text = f"{call.method} {path} was not answered{attempts}: {lost}"
    return text if again else f"{text}. It may have been done: check before you send it again"


__all__ = ["Blocking", "Flow", "Lost", "RetryPause", "Tries", "carried"]
