"""A store that is away: logged once, tried again until it is back, and logged once that it is back."""

from __future__ import annotations

import logging
import random

from ..errors import (
    Overloaded,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
    TooManyConflicts,
)

log = logging.getLogger("mainstay.worker")

_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 2.0

#: errors of a store that is away, and not of the call: the same call may succeed later
PASSING = (StoreUnavailable, StoreLocked, StoreFull, StoreReadOnly, TooManyConflicts, Overloaded)


class Outage:
    """Consecutive failures of one repeated operation.

    >>> outage = Outage("heartbeat", random.Random(1))
    >>> 0.05 <= outage.failed(StoreError("locked")) <= 0.1
    True
    """

    def __init__(self, what: str, rng: random.Random, *, longest_s: float = _LONGEST_WAIT_S) -> None:
        self._what = what
        self._rng = rng
        self._longest_s = longest_s
        self._failures = 0

    def failed(self, error: Exception) -> float:
        """Note a failure; the seconds to wait before the next try, jittered so that workers do not retry together. A
        manager that refused a call says how long at least."""
        self._failures += 1
        if self._failures == 1:
            if isinstance(error, StoreError):
                log.warning("store away what=%s: %s; trying again until it is back", self._what, error)
            else:
                # unexpected, so most likely a mistake of ours: it must be logged, and must not stop the worker
                log.error("failed what=%s; trying again", self._what, exc_info=error)
        full = min(self._longest_s, _FIRST_WAIT_S * 2.0 ** min(self._failures - 1, 20))
        asked_s = error.retry_after_s if isinstance(error, Overloaded) else 0.0
        return max(asked_s, full * self._rng.uniform(0.5, 1.0))

    def over(self) -> None:
        """It worked."""
        if self._failures:
            log.warning("works again what=%s tries=%d", self._what, self._failures)
        self._failures = 0
