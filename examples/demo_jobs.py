"""The jobs of the demo, and the expected end of each.

Jobs are found in the store by their tag, so the counts at the end are those of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import demo_tasks as tasks
import msgspec

from mainstay import Call
from mainstay.control import decoded
from mainstay.model import Job, Lane

ENDLESS, UNKNOWN, KILLED, FROZEN, WAITING = "endless", "unknown", "killed", "frozen", "waiting"
NIGHT = "night"
GROUP = range(1, 13)
PARTS = 10


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs with one tag, their expected status, and what else must be true of each."""

    tag: str
    title: str
    jobs: int
    expected: str
    proof: Callable[[Job], bool]


def result(job: Job) -> Any:
    """The result of a job, as plain data."""
    return None if job.result is None else decoded(job.result)


def calls_to_submit() -> list[Call[Any]]:
    """The jobs that can be submitted in one call."""
    mail = tasks.send_mail
    return [
        *_repeat(tasks.watch_door.options(tags=[ENDLESS]).job(), 4),
        *(mail.options(tags=["plain"]).job(f"user{n}@example.org", 0.03 + n % 5 * 0.02) for n in range(200)),
        *(tasks.resize_image.options(tags=["thread"]).job(100 * n) for n in range(1, 25)),
        *(tasks.count_primes.options(tags=["process"]).job(below=200_000) for _ in range(6)),
        *(tasks.call_api.options(tags=["flaky"]).job(succeeds_at=3) for _ in range(24)),
        *(tasks.parse_file.options(tags=["hopeless"]).job(f"{n}.csv") for n in range(8)),
        *(tasks.charge_card.options(tags=["permanent"]).job(n) for n in range(8)),
        *_repeat(tasks.eat_memory.options(tags=["poison"]).job(), 2),
        *_repeat(tasks.encode_video.options(tags=["slow"]).job(), 4),
        *_repeat(tasks.follow_feed.options(tags=["stalled"]).job(), 4),
        *(mail.options(tags=["delayed"], delay="2s").job(f"later{n}@example.org") for n in range(12)),
        *(mail.options(tags=["late"], queue=NIGHT, queue_deadline="3s").job("owl@example.org") for _ in range(6)),
        *(mail.options(tags=[WAITING], delay="1h").job(f"never{n}@example.org") for n in range(12)),
        *(mail.options(tags=["keyed"], key=f"welcome-{n % 6}").job(f"new{n % 6}@example.org") for n in range(24)),
        *_repeat(mail.options(tags=["unique"], unique=True).job("everybody@example.org"), 5),
        *(tasks.place_order.options(tags=["order"]).job(n) for n in range(5)),
    ]


def _repeat(call: Call[Any], times: int) -> list[Call[Any]]:
    return [call] * times


EXPECTATIONS: Sequence[Expectation] = (
    Expectation(
        tag="plain",
        title="async function",
        jobs=200,
        expected="succeeded",
        proof=lambda job: result(job).startswith("sent to user"),
    ),
    Expectation(
        tag="thread",
        title="plain function, in a thread",
        jobs=24,
        expected="succeeded",
        proof=lambda job: result(job) != "MainThread",
    ),
    Expectation(
        tag="process",
        title="CPU-bound, in a child process",
        jobs=6,
        expected="succeeded",
        proof=lambda job: result(job)["count"] == 17_984,
    ),
    Expectation(
        tag="flaky",
        title="failed twice, succeeded at the third attempt",
        jobs=24,
        expected="succeeded",
        proof=lambda job: result(job) >= 3,
    ),
    Expectation(
        tag="hopeless",
        title="failed at every attempt, given up",
        jobs=8,
        expected="quarantined",
        proof=lambda job: job.failures == 2,
    ),
    Expectation(
        tag="orphan",
        title="skipped: the job it waited for failed",
        jobs=2,
        expected="skipped",
        proof=lambda job: job.starts == 0,
    ),
    Expectation(
        tag="permanent",
        title="permanent error at the first attempt",
        jobs=8,
        expected="failed",
        proof=lambda job: job.failures == 1,
    ),
    Expectation(
        tag="poison",
        title="killed its process twice, given up",
        jobs=2,
        expected="quarantined",
        proof=lambda job: job.crashes == 2 and job.failures == 0,
    ),
    Expectation(
        tag="slow",
        title="stopped at its timeout, twice",
        jobs=4,
        expected="quarantined",
        proof=lambda job: job.error is not None and job.error.code == "run_timeout" and job.failures == 2,
    ),
    Expectation(
        tag="stalled",
        title="stalled, held for an operator",
        jobs=4,
        expected="quarantined",
        proof=lambda job: job.error is not None and job.error.code == "stalled",
    ),
    Expectation(
        tag="misfit",
        title="arguments do not fit its task",
        jobs=1,
        expected="quarantined",
        proof=lambda job: job.error is not None and "card.charge" in job.error.message,
    ),
    Expectation(
        tag=UNKNOWN,
        title="no worker has its task: it waits",
        jobs=1,
        expected="pending",
        proof=lambda job: job.starts == 0 and job.lane == Lane.ROUTED,
    ),
    Expectation(
        tag="delayed",
        title="delayed",
        jobs=12,
        expected="succeeded",
        proof=lambda job: (job.settled_ms or 0) >= job.created_ms + 2000,
    ),
    Expectation(
        tag="late",
        title="missed its queue deadline",
        jobs=6,
        expected="timed_out",
        proof=lambda job: job.starts == 0,
    ),
    Expectation(
        tag="keyed",
        title="6 mails, each submitted 4 times with one key",
        jobs=6,
        expected="succeeded",
        proof=lambda job: job.key is not None,
    ),
    Expectation(
        tag="unique",
        title="unique, submitted 5 times",
        jobs=1,
        expected="succeeded",
        proof=lambda job: job.unique_key is not None,
    ),
    Expectation(
        tag=WAITING,
        title="cancelled while waiting",
        jobs=12,
        expected="cancelled",
        proof=lambda job: job.starts == 0,
    ),
    Expectation(
        tag=ENDLESS,
        title="cancelled while running",
        jobs=4,
        expected="cancelled",
        proof=lambda job: job.starts >= 1,
    ),
    Expectation(
        tag="member",
        title="members of a group",
        jobs=len(GROUP),
        expected="succeeded",
        proof=lambda job: job.failures == 0,
    ),
    Expectation(
        tag="callback",
        title="callback of the group",
        jobs=1,
        expected="succeeded",
        proof=lambda job: result(job) == sum(n * n for n in GROUP),
    ),
    Expectation(
        tag="order",
        title="each submitted a follow-up",
        jobs=5,
        expected="succeeded",
        proof=lambda job: job.failures == 0,
    ),
    Expectation(
        tag="receipt",
        title="the follow-ups",
        jobs=5,
        expected="succeeded",
        proof=lambda job: result(job).startswith("receipt "),
    ),
    Expectation(
        tag=KILLED,
        title="its worker was killed",
        jobs=1,
        expected="succeeded",
        proof=lambda job: job.losses >= 1 and result(job) == f"began at part {PARTS // 2}",
    ),
    Expectation(
        tag=FROZEN,
        title="its worker froze and came back",
        jobs=1,
        expected="succeeded",
        proof=lambda job: job.losses >= 1 and result(job) == "rendered",
    ),
)
