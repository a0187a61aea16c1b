"""What an overloaded manager still takes, and how much of it from one caller.

The level of a manager decides by class: it sheds telemetry from `busy` on, data from `stressed` on, and dispatch when
it is `overloaded`. It never sheds control. Each caller has a bucket for each class but control, so one that asks too
much waits, and the others do not.

>>> [str(kind) for kind in MessageClass if is_shed(kind, "stressed")]
['data', 'telemetry']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from ..errors import Overloaded, RateLimited
from ..token_bucket import TokenBuckets
from .subjects import MessageClass

OverloadLevel = Literal["normal", "busy", "stressed", "overloaded"]

LEVELS: tuple[OverloadLevel, ...] = ("normal", "busy", "stressed", "overloaded")
#: from which level on a class is shed; control is not in it
_SHED_FROM: Mapping[MessageClass, OverloadLevel] = MappingProxyType(
    {MessageClass.TELEMETRY: "busy", MessageClass.DATA: "stressed", MessageClass.DISPATCH: "overloaded"}
)
#: when a refused caller may try again: a level is sampled each second
RETRY_AFTER_S = 1.0


class CallRate(NamedTuple):
    """The calls that one caller may make: a number at once, and then a number each second."""

    each_s: float
    burst: float


#: of one caller at one manager, by class. A program that waits for each answer does not reach them
CALL_RATES: Mapping[MessageClass, CallRate] = MappingProxyType(
    {MessageClass.DISPATCH: CallRate(1000.0, 2000.0), MessageClass.DATA: CallRate(1000.0, 2000.0)}
)


def is_shed(kind: MessageClass, level: OverloadLevel) -> bool:
    """Whether a manager at this level refuses a class.

    >>> is_shed(MessageClass.DATA, "busy"), is_shed(MessageClass.CONTROL, "overloaded")
    (False, False)
    """
    from_level = _SHED_FROM.get(kind)
    return from_level is not None and LEVELS.index(level) >= LEVELS.index(from_level)


class Admission:
    """Decides for the services of one manager which requests they take, and counts the others."""

    def __init__(
        self,
        *,
        level: Callable[[], OverloadLevel] = lambda: "normal",
        rates: Mapping[MessageClass, CallRate] = CALL_RATES,
    ) -> None:
        """`level` tells how loaded the manager is now."""
        self._level = level
        self._buckets = {kind: TokenBuckets(rate.each_s, burst=rate.burst) for kind, rate in rates.items()}
        #: refused because of the load of the manager, by class
        self.shed: Counter[MessageClass] = Counter()
        #: refused because their caller makes too many, by class
        self.limited: Counter[MessageClass] = Counter()

    @property
    def level(self) -> OverloadLevel:
        """How loaded the manager is now."""
        return self._level()

    def sheds(self, kind: MessageClass) -> bool:
        """Whether to drop a message that is not answered; then it is counted."""
        shed = is_shed(kind, self._level())
        self.shed[kind] += shed
        return shed

    def check(self, kind: MessageClass, caller: str, now_s: float) -> None:
        """Take a request of a caller, or raise `Overloaded` or `RateLimited`. Control is always taken."""
        level = self._level()
        if is_shed(kind, level):
            raise self.overloaded(kind, f"the manager is {level} and takes no {kind} requests", RETRY_AFTER_S)
        buckets = self._buckets.get(kind)
        wait_s = 0.0 if buckets is None else buckets.take(caller, now_s)
        if wait_s > 0:
            raise self.rate_limited(kind, f"{kind} requests of {caller[:100]}", wait_s)

    def rate_limited(self, kind: MessageClass, what: str, retry_after_s: float) -> RateLimited:
        """The error for a request that is not taken because its caller makes too many, which is counted."""
        self.limited[kind] += 1
        return RateLimited(what, retry_after_s)

    def overloaded(self, kind: MessageClass, why: str, retry_after_s: float) -> Overloaded:
        """The error for a request that is not taken because of all the others, which is counted."""
        self.shed[kind] += 1
        return Overloaded(why, retry_after_s)


__all__ = [
    "CALL_RATES",
    "LEVELS",
    "RETRY_AFTER_S",
    "Admission",
    "CallRate",
    "OverloadLevel",
    "is_shed",
]
