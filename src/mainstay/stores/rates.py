"""Moves per minute, from counts per minute: the same arithmetic for every store."""

from __future__ import annotations

from collections.abc import Mapping

from ..model import id_time_ms
from .bounds import RATE_MINUTES

_MINUTE_MS = 60_000

#: The shortest time that a rate covers: one job in a store that is a second old is not sixty a minute.
LEAST_MS = 10_000


def first_rate_minute(now_ms: int) -> int:
    """The first minute (since the epoch) that the rates cover: some whole minutes, and the current one."""
    return now_ms // _MINUTE_MS - RATE_MINUTES + 1


def per_minute(
    counts: Mapping[str, int], *, now_ms: int, first_counted: int | None, oldest_job: str | None
) -> dict[str, float]:
    """Divide the counts since `first_rate_minute` by the time that they cover.

    That time ends now, and starts with the first of the minutes, or with the store's first job if that is younger.
    `first_counted` is the first minute for which the store still has counts; `oldest_job` is the lowest id of its jobs,
    which gives a more exact time, but may be deleted.
    """
    since_ms = first_rate_minute(now_ms) * _MINUTE_MS
    began_ms = since_ms
    if first_counted is not None and first_counted * _MINUTE_MS >= since_ms:
        counted_ms = first_counted * _MINUTE_MS
        oldest_ms = counted_ms if oldest_job is None else _time_of(oldest_job, counted_ms)
        if oldest_ms >= counted_ms:  # otherwise the store is older, and had no moves for a while
            began_ms = oldest_ms if oldest_ms < counted_ms + _MINUTE_MS else counted_ms
    minutes = max(now_ms - began_ms, LEAST_MS) / _MINUTE_MS
    return {status: n / minutes for status, n in counts.items()}


def _time_of(job_id: str, otherwise_ms: int) -> int:
    try:
        return id_time_ms(job_id)
    except ValueError:  # a damaged id; `mainstay check` reports it
        return otherwise_ms
