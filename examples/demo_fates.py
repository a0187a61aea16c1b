"""The demo's cast: which jobs are submitted, and what is to become of each.

The jobs of a fate are found in the store by their tag, so what is counted at the end is what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import demo_tasks as tasks
import msgspec

from mainstay import Call
from mainstay.control import decoded
from mainstay.model import Job, Lane

ENDLESS, UNKNOWN, VICTIM, HAUNTED, WAITING = "endless", "unknown", "victim", "haunted", "waiting"
NIGHT = "night"
GROUP = range(1, 13)
PARTS = 10


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs, what is to become of them, and what must be true of each besides its status."""

    tag: str
    title: str
    jobs: int
    expected: str
    proof: Callable[[Job], bool]


def result(job: Job) -> Any:
    """What a job returned, as plain data."""
    return None if job.result is None else decoded(job.result)


def crowd() -> list[Call[Any]]:
    """Whatever can be submitted in one go."""
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


FATES: Sequence[Fate] = (
    Fate(
        tag="plain",
        title="simply done (async)",
        jobs=200,
        expected="succeeded",
        proof=lambda job: result(job).startswith("sent to user"),
    ),
    Fate(
        tag="thread",
        title="done in a thread",
        jobs=24,
        expected="succeeded",
        proof=lambda job: result(job) != "MainThread",
    ),
    Fate(
        tag="process",
        title="done in a process of its own",
        jobs=6,
        expected="succeeded",
        proof=lambda job: result(job)["count"] == 17_984,
    ),
    Fate(
        tag="flaky",
        title="failed twice, done at the third attempt",
        jobs=24,
        expected="succeeded",
        proof=lambda job: result(job) >= 3,
    ),
    Fate(
        tag="hopeless",
        title="failed at every attempt, given up",
        jobs=8,
        expected="quarantined",
        proof=lambda job: job.failures == 2,
    ),
    Fate(
        tag="orphan",
        title="not needed: what it waited for failed",
        jobs=2,
        expected="skipped",
        proof=lambda job: job.starts == 0,
    ),
    Fate(
        tag="permanent",
        title="failed for good at the first attempt",
        jobs=8,
        expected="failed",
        proof=lambda job: job.failures == 1,
    ),
    Fate(
        tag="poison",
        title="killed its process twice, given up",
        jobs=2,
        expected="quarantined",
        proof=lambda job: job.crashes == 2 and job.failures == 0,
    ),
    Fate(
        tag="slow",
        title="stopped at its timeout, twice",
        jobs=4,
        expected="quarantined",
        proof=lambda job: job.error is not None and job.error.code == "run_timeout" and job.failures == 2,
    ),
    Fate(
        tag="stalled",
        title="stopped getting on, held for a person",
        jobs=4,
        expected="quarantined",
        proof=lambda job: job.error is not None and job.error.code == "stalled",
    ),
    Fate(
        tag="misfit",
        title="arguments no longer fit its task",
        jobs=1,
        expected="quarantined",
        proof=lambda job: job.error is not None and "card.charge" in job.error.message,
    ),
    Fate(
        tag=UNKNOWN,
        title="no worker knows its task: it waits",
        jobs=1,
        expected="pending",
        proof=lambda job: job.starts == 0 and job.lane == Lane.ROUTED,
    ),
    Fate(
        tag="delayed",
        title="not before its time",
        jobs=12,
        expected="succeeded",
        proof=lambda job: (job.settled_ms or 0) >= job.created_ms + 2000,
    ),
    Fate(
        tag="late",
        title="not begun by its queue deadline",
        jobs=6,
        expected="timed_out",
        proof=lambda job: job.starts == 0,
    ),
    Fate(
        tag="keyed",
        title="6 mails, each sent 4 times with one key",
        jobs=6,
        expected="succeeded",
        proof=lambda job: job.key is not None,
    ),
    Fate(
        tag="unique",
        title="one of its kind, asked for 5 times",
        jobs=1,
        expected="succeeded",
        proof=lambda job: job.unique_key is not None,
    ),
    Fate(
        tag=WAITING,
        title="cancelled while waiting",
        jobs=12,
        expected="cancelled",
        proof=lambda job: job.starts == 0,
    ),
    Fate(
        tag=ENDLESS,
        title="cancelled while running",
        jobs=4,
        expected="cancelled",
        proof=lambda job: job.starts >= 1,
    ),
    Fate(
        tag="member",
        title="members of a group",
        jobs=len(GROUP),
        expected="succeeded",
        proof=lambda job: job.failures == 0,
    ),
    Fate(
        tag="callback",
        title="the one that runs when all are done",
        jobs=1,
        expected="succeeded",
        proof=lambda job: result(job) == sum(n * n for n in GROUP),
    ),
    Fate(
        tag="order",
        title="each left a follow-up",
        jobs=5,
        expected="succeeded",
        proof=lambda job: job.failures == 0,
    ),
    Fate(
        tag="receipt",
        title="the follow-ups",
        jobs=5,
        expected="succeeded",
        proof=lambda job: result(job).startswith("receipt "),
    ),
    Fate(
        tag=VICTIM,
        title="its worker was killed",
        jobs=1,
        expected="succeeded",
        proof=lambda job: job.losses >= 1 and result(job) == f"began at part {PARTS // 2}",
    ),
    Fate(
        tag=HAUNTED,
        title="its worker froze and came back",
        jobs=1,
        expected="succeeded",
        proof=lambda job: job.losses >= 1 and result(job) == "rendered",
    ),
)
