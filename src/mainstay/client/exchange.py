"""How a call is carried through: sent, sent again, given up. No I/O: whoever drives it sends and waits.

A *flow* is a generator that yields what is to be done, an `ApiCall` to send or a `RetryPause` to make, and returns the
result. The sync and the async client drive the same flows.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any, TypeVar

import msgspec

from ..errors import MainstayError, ServerUnreachable
from .calls import ApiAnswer, ApiCall
from .refusals import error_of

T = TypeVar("T")

_TOO_MANY = 429
_AWAY = (502, 503, 504)


class RetryPause(msgspec.Struct, frozen=True):
    """Wait so long."""

    seconds: float


class Lost(Exception):
    """No answer came; `sent` says whether the request may have arrived."""

    def __init__(self, why: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(why)


Flow = Generator[ApiCall[Any] | RetryPause, Any, T]


class Tries(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and how long, a request is tried again. Times are seconds.

    >>> Tries(jitter=False).pause(3, None, random.Random(1)), Tries().pause(1, 7.0, random.Random(1))
    (0.8, 7.0)
    """

    most: int = 6
    """requests in all; 1 never tries again"""
    base_s: float = 0.2
    cap_s: float = 5.0
    total_s: float = 60.0
    """pauses of one call in all; what the server asks for beyond it is not waited for"""
    jitter: bool = True

    def pause(self, tried: int, asked_s: float | None, rng: random.Random) -> float:
        """How long to wait after so many tries; what the server asked for (`Retry-After`) goes first."""
        if asked_s is not None:
            return asked_s
        ceiling = min(self.cap_s, self.base_s * 2 ** (tried - 1))
        return rng.uniform(0, ceiling) if self.jitter else ceiling


def carried(call: ApiCall[T], tries: Tries, rng: random.Random) -> Flow[T]:
    """Send a call until there is an answer, as long as that does no harm."""
    paused_s, tried = 0.0, 0
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
            asked_s = retry_after(answer)
            # refused before anything was done, or fit to be done twice
            again = answer.status == _TOO_MANY or (answer.status in _AWAY and call.safe)
        pause_s = tries.pause(tried, asked_s, rng)
        if not again or tried >= tries.most or paused_s + pause_s > tries.total_s:
            raise error
        paused_s += pause_s
        yield RetryPause(pause_s)


def retry_after(answer: ApiAnswer) -> float | None:
    """What the server asks to wait, in seconds; a date is passed over."""
    said = answer.headers.get("retry-after", "").strip()
    return float(said) if said.isascii() and said.isdigit() and len(said) < 10 else None


def _unreachable(call: ApiCall[Any], lost: Lost, *, again: bool, tried: int) -> str:
    path = call.path.partition("?")[0]
    times = f" at {tried} tries" if tried > 1 else ""
    text = f"{call.method} {path} was not answered{times}: {lost}"
    return text if again else f"{text}. It may have been done: look before you ask again"


__all__ = ["Flow", "Lost", "RetryPause", "Tries", "carried", "retry_after"]
