"""The commonest write of all: a batch of claims whose work is done.

Such changes are alike in nearly everything, so little of them is sent. The driver looks at every value of an array for
more than a microsecond; one text or one row of bytes that holds them all costs next to nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..port import Change
from .rows import spare

_ARGUMENTS = 18
SETTLE_ALIKE = f"SELECT mainstay.settle_alike({', '.join(f'${n}' for n in range(1, _ARGUMENTS + 1))})"

_IDS = re.compile(r"(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12},)+")
_DIGEST = 32


def alike(changes: Sequence[Change]) -> list[Any] | None:
    """The arguments of `SETTLE_ALIKE` but for the time, in the order of the ids; None if these are not such changes."""
    first = changes[0]
    holder, status, ended_ms = first.holder, first.after.status, first.after.changed_ms
    if holder is None or not all(_ends(change, holder, status, ended_ms) for change in changes):
        return None
    in_order = sorted(changes, key=_id) if len(changes) > 1 else changes
    befores = [change.before for change in in_order]
    afters = [change.after for change in in_order]
    ids = [job.id for job in afters]
    details = [change.events[0].details or "" for change in in_order]
    seen_heads = b"".join([job.head for job in befores])
    new_heads = b"".join([job.head for job in afters])
    text = "\n".join(details)
    if (
        len(set(ids)) < len(ids)
        or _IDS.fullmatch(",".join([*ids, ""])) is None
        or text.count("\n") >= len(ids)
        or not len(seen_heads) == len(new_heads) == _DIGEST * len(ids)
    ):
        return None
    queues = Counter([job.queue for job in afters])
    versions, starts, expiries, results = spare(
        [
            [job.version for job in befores],
            [job.starts for job in afters],
            [job.expires_ms for job in afters],
            [job.result for job in afters],
        ]
    )
    return [
        ",".join(ids),
        versions,
        holder,
        ",".join([str(job.claimed_ms) for job in befores]),
        seen_heads,
        status,
        ended_ms,
        starts,
        expiries,
        results,
        new_heads,
        text,
        [*queues, *queues],
        [status] * len(queues) + ["running"] * len(queues),
        [*queues.values(), *(-n for n in queues.values())],
        [status],
        [len(ids)],
    ]


def _ends(change: Change, holder: str, status: str, ended_ms: int) -> bool:
    """Whether a holder ends its claim then and so, with nothing that follows from it; all else stays as it is.

    A row that was written since its claim has another time of change; should that be in the same millisecond, the
    server finds out."""
    before, after = change.before, change.after
    return (
        # it is theirs, and as it was claimed
        before.session == holder == change.holder
        and before.status == "running"
        and before.claimed_ms == before.changed_ms
        # it ends
        and after.status == status
        and after.settled_ms == after.changed_ms == ended_ms
        and after.version == before.version + 1
        and after.session is None
        and after.claimed_ms is None
        and after.started_ms is None
        and after.reason is None
        and after.error is None
        and after.lane == 0
        # it concerns nobody else
        and after.parent is None
        and after.concurrency_key is None
        and not change.spawn
        # nothing else changes
        and after.priority == before.priority
        and after.token == before.token
        and after.failures == before.failures
        and after.crashes == before.crashes
        and after.releases == before.releases
        and after.losses == before.losses
        and after.due_ms == before.due_ms
        and after.extra_ms == before.extra_ms
        and after.rank == before.rank
        and _says_so(change, holder)
    )


def _says_so(change: Change, holder: str) -> bool:
    """Whether its one event is the one that the statement writes."""
    if len(change.events) != 1:
        return False
    after = change.after
    event = change.events[0]
    return (
        event.job_id == after.id
        and event.seq == after.version
        and event.at_ms == after.changed_ms
        and event.source == "running"
        and event.to == after.status
        and event.actor == holder
        and event.reason is None
        and event.token == after.token
        and event.flag == ""
        and event.details != ""
        and event.digest == after.head
    )


def _id(change: Change) -> str:
    return change.after.id
