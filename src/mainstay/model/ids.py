"""Job ids: UUIDv7, time-ordered, from an injected clock and random source.

Hand-written because the standard library has no UUIDv7 before 3.14, and packages that have it accept neither a clock
nor a `random.Random`.
"""

from __future__ import annotations

import hashlib
import random
import re

from ..errors import InvalidInput

_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_LOW_BITS = 74
_LOW_MASK = (1 << 62) - 1
_VARIANT = 0b10 << 62


class IdSource:
    """Makes increasing ids, also within one millisecond.

    The 74 random bits are drawn for each millisecond and then counted up, so that ids of one batch keep the order of
    submission.

    >>> import random
    >>> ids = IdSource(random.Random(1))
    >>> first, second = ids.take(1_700_000_000_000, 2)
    >>> first < second, first[:15]
    (True, '018bcfe5-6800-7')
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._ms = -1
        self._low = 0

    def take(self, now_ms: int, n: int) -> list[str]:
        if now_ms > self._ms:
            self._ms = now_ms
            # the top bit is zero, so counting up cannot overflow
            self._low = self._rng.getrandbits(_LOW_BITS - 1)
        first, self._low = self._low + 1, self._low + n
        high = f"{self._ms:012x}"
        head = f"{high[:8]}-{high[8:]}-7"
        taken = []
        for low in range(first, self._low + 1):
            tail = f"{_VARIANT | (low & _LOW_MASK):016x}"
            taken.append(f"{head}{low >> 62:03x}-{tail[:4]}-{tail[4:]}")
        return taken


def id_time_ms(job_id: str) -> int:
    """When an id was made."""
    return int(job_id[:8] + job_id[9:13], 16)


def first_id_at(at_ms: int) -> str:
    """The smallest id of a millisecond: all earlier ids sort before it."""
    text = f"{max(at_ms, 0):012x}"
    return f"{text[:8]}-{text[8:12]}-7000-8000-000000000000"


def driver_id(job_id: str, token: int) -> str:
    """The id of the unit that drives a job since the claim with this token (`control.drivers`).

    >>> driver_id("018bcfe5-6800-7000-8000-000000000001", 1)
    '018bcfe5-6800-7437-a920-60fde23f3bc7'
    """
    drawn = hashlib.sha256(f"driver {token} of {job_id}".encode()).hexdigest()
    # of the same millisecond as the job, so that it sorts with it
    return f"{job_id[:15]}{drawn[:3]}-a{drawn[3:6]}-{drawn[6:18]}"


def driver_ids(job_id: str, token: int) -> list[str]:
    """The ids of the drivers of a job: one for each of its last thousand claims up to this one. A job with units has
    fewer."""
    return [driver_id(job_id, each) for each in range(max(1, token - 999), token + 1)]


def check_id(job_id: str, *, field: str = "job") -> str:
    """Refuse an invalid job id."""
    if not isinstance(job_id, str) or not _FORM.fullmatch(job_id):
        raise InvalidInput(field, f"{job_id!r} is not a job id (a UUIDv7, like 018bcfe5-6800-7000-8000-0123456789ab)")
    return job_id
