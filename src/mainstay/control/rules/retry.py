"""Whether a failed attempt is tried again, and when.

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
from ..failure import clean, shown

#: beyond this the doubling has long met every cap, and floats would overflow
_MOST_DOUBLINGS = 1000
_REASON_LIMIT = 200


class Wait(msgspec.Struct, frozen=True):
    """Try again after so many seconds; zero means at once."""

    seconds: float
    reason: str | None = None


class Stop(msgspec.Struct, frozen=True):
    """Leave it failed: another attempt would not help."""

    reason: str | None = None


class Quarantine(msgspec.Struct, frozen=True):
    """Give up and keep it for a person."""

    reason: str | None = None


Verdict = Wait | Stop | Quarantine

#: A retry policy of one's own: (attempt, job, error) -> verdict; attempt is 1 after the first failure.
#: It must be pure: it may be asked more than once about the same failure.
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
    """What follows the failure of the attempt that `job` describes (its counters do not hold it yet).

    An own `decide` function has the whole say. Without one, an error that calls itself permanent stops, a spent
    budget quarantines, and `after_s` (asked for by the job itself) stands in for the backoff.
    """
    attempt = job.failures + 1
    if decide is not None:
        return _asked(decide, attempt, job, error)
    if error.retryable is False:
        return Stop("the error is permanent")
    policy = job.options.retry
    if attempt > policy.retries:
        return Quarantine(f"gave up after {attempt} failed {'attempt' if attempt == 1 else 'attempts'}")
    if after_s is not None and not _is_wait(after_s):
        return Quarantine(f"it asked to wait {shown(after_s)} seconds before its next attempt")
    wait_s = backoff(policy, attempt, rng) if after_s is None else after_s
    when = f"in {duration_text(round(wait_s, 3))}" if wait_s else "at once"
    return Wait(wait_s, f"retry {attempt} of {policy.retries} {when}")


def after_crash(job: Job) -> Verdict:
    """What follows when the attempt took its process down: again at once, until the crash budget is spent."""
    crashes, budget = job.crashes + 1, job.options.retry.crash_budget
    if crashes >= budget:
        return Quarantine(
            f"its worker died {crashes} {'time' if crashes == 1 else 'times'} while running it (crash budget {budget})"
        )
    return Wait(0, f"again at once; crash {crashes} of {budget}")


def _asked(decide: Callable[[int, Job, ErrorInfo], object], attempt: int, job: Job, error: ErrorInfo) -> Verdict:
    """The answer of a user's function; whatever goes wrong in it, the job is not lost."""
    try:
        verdict = decide(attempt, job, error)
    except Exception as raised:  # noqa: BLE001 - the function is not ours, it may raise anything
        return Quarantine(f"its retry function raised {shown(raised, _REASON_LIMIT)}")
    if not isinstance(verdict, Wait | Stop | Quarantine):
        return Quarantine(f"its retry function answered {shown(verdict)}; expected Wait, Stop or Quarantine")
    said: object = verdict.reason
    reason = clean(said if isinstance(said, str) else shown(said))[:_REASON_LIMIT] if said else None
    if not isinstance(verdict, Wait):
        return msgspec.structs.replace(verdict, reason=reason)
    wait_s = verdict.seconds
    if not _is_wait(wait_s):
        return Quarantine(f"its retry function asked to wait {shown(wait_s)} seconds")
    when = f"in {duration_text(round(wait_s, 3))}" if wait_s else "at once"
    return Wait(wait_s, reason or f"its retry function asked for a retry {when}")


def _is_wait(wait_s: object) -> bool:
    """A time that can be waited for: a number, finite, and not centuries."""
    if not isinstance(wait_s, int | float) or isinstance(wait_s, bool):
        return False
    return 0 <= wait_s <= MAX_MS // 4000
