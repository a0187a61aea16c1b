"""Completions: the most frequent write, a batch of claims whose work succeeded.

Such changes have nearly all values in common, so little data is sent. The driver needs more than a microsecond for
every value of an array, but next to nothing for one text or one bytes object with all values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...port import SealedChange
from ..rows.codec import are_ids, spare

_ARGUMENTS = 18
COMPLETE = f"SELECT mainstay.settle_alike({', '.join(f'${n}' for n in range(1, _ARGUMENTS + 1))})"


def completion_arguments(changes: Sequence[SealedChange]) -> list[Any] | None:
    """The arguments of `COMPLETE` except the time, in the order of the ids; None if it cannot write these changes."""
    holder, ended_ms = changes[0].holder, changes[0].after.changed_ms
    if holder is None or not all(_is_simple(change, holder, ended_ms) for change in changes):
        return None
    in_order = sorted(changes, key=_id) if len(changes) > 1 else changes
    befores = [change.before for change in in_order]
    afters = [change.after for change in in_order]
    ids = [job.id for job in afters]
    if not are_ids(ids):
        return None
    status = afters[0].status
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
        b"".join([job.head for job in befores]),
        status,
        ended_ms,
        starts,
        expiries,
        results,
        b"".join([job.head for job in afters]),
        "\n".join([change.events[0].details or "" for change in in_order]),
        [*queues, *queues],
        [status] * len(queues) + ["running"] * len(queues),
        [*queues.values(), *(-n for n in queues.values())],
        [status],
        [len(ids)],
    ]


def _is_simple(change: SealedChange, holder: str, ended_ms: int) -> bool:
    """Whether a change is a completion by this holder at this time that affects no other row.

    A row that was written since its claim has another time of change; if that was in the same millisecond, the server
    refuses it."""
    before, after = change.before, change.after
    return (
        change.kind == "complete"
        and change.holder == holder
        and after.changed_ms == ended_ms
        and before.claimed_ms == before.changed_ms
        and after.parent is None
        and after.concurrency_key is None
        and not change.spawn
    )


def _id(change: SealedChange) -> str:
    return change.after.id
