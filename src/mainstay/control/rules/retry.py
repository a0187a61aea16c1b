"""Whether and when a failed attempt is retried.

>>> import random
>>> from mainstay.model import RetryPolicy
>>> policy = RetryPolicy(jitter=False)
>>> [backoff(policy, n, random.Random(1)) for n in (1, 2, 3)]
[2.0, 4.0, 8.0]
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from ...clock import MAX_MS, duration_text
from ...model import ErrorInfo, Job, RetryPolicy
from ...words import counted
from ..failure import shown, storable_text

#: more doublings exceed every cap, and floats would overflow
_MOST_DOUBLINGS = 1000
_REASON_LIMIT = 200


class Wait(msgspec.Struct, frozen=True):
    """Try again after this number of seconds; zero means at once."""

    seconds: float
    reason: str | None = None


class Stop(msgspec.Struct, frozen=True):
    """Leave the job failed: another attempt would not help."""

    reason: str | None = None


class Quarantine(msgspec.Struct, frozen=True):
    """Give up and keep the job for an operator."""

    reason: str | None = None


Verdict = Wait | Stop | Quarantine

#: A custom retry policy: (attempt, job, error) -> verdict; attempt is 1 after the first failure.
#: It must be pure: it may be called more than once for the same failure.
Decide = Callable[[int, Job, ErrorInfo], Verdict]


def backoff(policy: RetryPolicy, n: int, rng: random.Random) -> float:
    """Seconds before retry n (1 for the first)."""
    if policy.kind == "exponential":
        full = policy.base_s * 2.0 ** min(n - 1, _MOST_DOUBLINGS)
    elif policy.kind == "linear":
        full = policy.base_s * n
    else:
        full = policy.base_s
    full = min(policy.cap_s, full)
    return rng.uniform(0, full) if policy.jitter else full


def after_failure(
    job: Job, error: ErrorInfo, *, rng: random.Random, decide: Decide | None = None, after_s: float | None = None
) -> Verdict:
    """The verdict on a failed attempt, which the counters of `job` do not include yet.

    A custom `decide` function decides alone. Without one, a permanent error stops, a spent budget quarantines, and
    `after_s` (requested by the job itself) replaces the backoff.
    """
    attempt = job.failures + 1
    if decide is not None:
        return _asked(decide, attempt, job, error)
    if error.retryable is False:
        return Stop("the error is permanent")
    policy = job.options.retry
    if attempt > policy.retries:
        return Quarantine(f"gave up after {counted(attempt, 'failed attempt')}")
    if after_s is not None and not _is_wait(after_s):
        return Quarantine(f"it asked to wait {shown(after_s)} seconds before its next attempt")
    wait_s = backoff(policy, attempt, rng) if after_s is None else after_s
    when = f"in {duration_text(round(wait_s, 3))}" if wait_s else "at once"
    return Wait(wait_s, f"retry {attempt} of {policy.retries} {when}")


def after_crash(job: Job) -> Verdict:
    """The verdict on an attempt that killed its process: again at once, until the crash budget is spent."""
    crashes, budget = job.crashes + 1, job.options.retry.crash_budget
    if crashes >= budget:
        return Quarantine(f"its worker died {counted(crashes, 'time')} while running it (crash budget {budget})")
    return Wait(0, f"again at once; crash {crashes} of {budget}")


def _asked(decide: Callable[[int, Job, ErrorInfo], object], attempt: int, job: Job, error: ErrorInfo) -> Verdict:
    """The verdict of a user's function; if the function fails, the job is quarantined."""
    try:
        verdict = decide(attempt, job, error)
    except Exception as raised:  # noqa: BLE001 - the function is not ours, it may raise anything
        return Quarantine(f"its retry function raised {shown(raised, _REASON_LIMIT)}")
    if not isinstance(verdict, Wait | Stop | Quarantine):
        return Quarantine(f"its retry function returned {shown(verdict)}; expected Wait, Stop or Quarantine")
    given: object = verdict.reason
    reason = storable_text(given if isinstance(given, str) else shown(given))[:_REASON_LIMIT] if given else None
    if not isinstance(verdict, Wait):
        return msgspec.structs.replace(verdict, reason=reason)
    wait_s = verdict.seconds
    if not _is_wait(wait_s):
        return Quarantine(f"its retry function asked to wait {shown(wait_s)} seconds")
    when = f"in {duration_text(round(wait_s, 3))}" if wait_s else "at once"
    return Wait(wait_s, reason or f"its retry function asked for a retry {when}")


def _is_wait(wait_s: object) -> bool:
    """Whether it is a time to wait: a finite number, below some centuries."""
    if not isinstance(wait_s, int | float) or isinstance(wait_s, bool):
        return False
    return 0 <= wait_s <= MAX_MS // 4000
