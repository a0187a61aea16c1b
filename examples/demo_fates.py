"""The demo's cast: which jobs are submitted, and what is to become of each.

Seeded, so that everybody meets the same fate in every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec

from mainstay.control import Request, decoded
from mainstay.model import Job


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs, what is to become of them, and what must be true of each besides its status."""

    tag: str
    title: str
    requests: list[Request]
    expected: str
    proof: Callable[[Job], bool]
    jobs: int = 0
    """how many there will be, when not one per request"""


def fates(rng: random.Random, flag: Path) -> list[Fate]:
    """The cast. `flag` is the file whose appearance ends the hang of a worker."""

    def cast(tag: str, name: str, n: int, options: dict[str, object] | None = None, **payload: object) -> list[Request]:
        given = {"tags": [tag], **(options or {})}
        return [Request(name, {"n": i, "takes": round(rng.uniform(0.05, 0.25), 3), **payload}, given) for i in range(n)]

    again = [rng.randint(1, 2) for _ in range(36)]
    return [
        Fate(
            tag="plain",
            title="simply done",
            requests=cast("plain", "mail.send", 240, {"queue": "mail"}),
            expected="succeeded",
            proof=lambda job: job.failures == 0,
        ),
        Fate(
            tag="flaky",
            title="failed once or twice, then done",
            requests=[r for n in again for r in cast("flaky", "api.call", 1, failures=n)],
            expected="succeeded",
            proof=lambda job: job.failures == decoded(job.payload)["failures"],
        ),
        Fate(
            tag="poison",
            title="failed every time, given up",
            requests=cast("poison", "file.parse", 8, {"retries": 2}),
            expected="quarantined",
            proof=lambda job: job.failures == 3,
        ),
        Fate(
            tag="permanent",
            title="failed for good at the first try",
            requests=cast("permanent", "card.charge", 8),
            expected="failed",
            proof=lambda job: job.failures == 1,
        ),
        Fate(
            tag="slow",
            title="stopped at the run timeout, twice",
            requests=cast("slow", "mail.send", 6, {"timeout": "300ms", "retries": 1}, takes=60),
            expected="quarantined",
            proof=lambda job: job.error is not None and job.error.code == "run_timeout" and job.failures == 2,
        ),
        Fate(
            tag="late",
            title="not begun by its queue deadline",
            requests=cast("late", "mail.send", 6, {"queue": "night", "queue_deadline": "2500ms"}),
            expected="timed_out",
            proof=lambda job: job.starts == 0,
        ),
        Fate(
            tag="delayed",
            title="not before its time",
            requests=cast("delayed", "mail.send", 12, {"delay": "2s"}),
            expected="succeeded",
            proof=lambda job: (job.settled_ms or 0) >= job.created_ms + 2000,
        ),
        Fate(
            tag="keyed",
            title="sent 4 times with one key",
            requests=[r for n in range(6) for r in cast("keyed", "mail.send", 1, {"key": f"mail-{n}"}, takes=0.1) * 4],
            expected="succeeded",
            proof=lambda job: job.key is not None and job.token >= 1,
            jobs=6,
        ),
        Fate(
            tag="waiting",
            title="cancelled while waiting",
            requests=cast("waiting", "mail.send", 12, {"delay": "1h"}),
            expected="cancelled",
            proof=lambda job: job.starts == 0,
        ),
        Fate(
            tag="endless",
            title="cancelled while running",
            requests=cast("endless", "feed.watch", 4, {"priority": 50}),
            expected="cancelled",
            proof=lambda job: job.starts >= 1,
        ),
        Fate(
            tag="victim",
            title="its worker was killed",
            requests=cast("victim", "orders.import", 1, {"priority": 50}),
            expected="succeeded",
            proof=lambda job: job.crashes >= 1 and job.token >= 2,
        ),
        Fate(
            tag="haunted",
            title="its worker hung and came back",
            requests=cast("haunted", "report.render", 1, {"priority": 50}, hangs_until=str(flag)),
            expected="succeeded",
            proof=lambda job: "ghost" not in decoded(job.result or b"\xa0"),
        ),
    ]
