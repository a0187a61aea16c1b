"""New jobs as arguments of the scripts, and the scripts' replies.

The script decides whether a job is inserted, in one step with writing it (`lua/entry.lua`). The fate of a job that
waits for a settled one is decided here, before it is written: it is inserted in its new state. The script reports the
settled jobs, and the insert is sent again with them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec

from ...errors import MainstayError
from ...lifecycle import Chain, Event
from ...model import Job
from .. import change_check
from ..port import InsertResult, NewJob, Written
from .rows import beside_bytes, event_bytes, fixed_bytes, row_bytes
from .scripts import blob


class EntryFacts(msgspec.Struct):
    """What earlier attempts have found."""

    ended: dict[str, str] = {}
    """awaited job that has settled, by the given id -> its status"""
    standing: set[str] = set()
    """units that are not inserted, because others stand for them"""


class EntryBatch:
    """New jobs, moved on by the settled jobs that they wait for.

    `ended` maps each awaited job that has settled, by the given id, to its status.
    """

    def __init__(self, jobs: Sequence[NewJob], ended: dict[str, str], *, now_ms: int, chain: Chain) -> None:
        self._jobs = jobs
        self._rows = {new.job.id: new.job for new in jobs} if ended else {}
        self._events: dict[str, list[Event]] = {}
        self._moves: dict[str, list[Written]] = {}
        self._ended = dict(ended)
        if ended:
            self._move_on(now_ms, chain)
        self.args = [self._arg(new) for new in jobs]

    def written(self, reply: Sequence[Any]) -> list[Written]:
        """The rows that were inserted, for the observer."""
        written: list[Written] = []
        for new, existing in zip(self._jobs, reply, strict=True):
            if existing is False:
                written.append((None, new.job, new.events))
                written += self._moves.get(new.job.id, ())
        return written

    def _move_on(self, now_ms: int, chain: Chain) -> None:
        """Move on the jobs that wait for settled jobs, and those that wait for them."""
        waiters: dict[str, list[str]] = {}
        left: Counter[str] = Counter()
        for new in self._jobs:
            for on in dict.fromkeys(new.after):
                waiters.setdefault(on, []).append(new.job.id)
                left[new.job.id] += 1
        over = deque((on, self._ended[on]) for on in waiters if on in self._ended)
        while over:
            on, status = over.popleft()
            for job_id in waiters.pop(on, ()):
                left[job_id] -= 1
                row = self._rows[job_id]
                moved = change_check.dependant_move(row, on, status, more=left[job_id] > 0, now_ms=now_ms, chain=chain)
                if moved is None:
                    continue
                self._rows[job_id] = moved.job
                self._events.setdefault(job_id, []).extend(moved.events)
                self._moves.setdefault(job_id, []).append((row, moved.job, moved.events))
                if change_check.is_settled(moved.job):
                    self._ended.setdefault(job_id, moved.job.status)
                    over.append((job_id, moved.job.status))

    def _arg(self, new: NewJob) -> list[Any]:
        job: Job = self._rows.get(new.job.id, new.job)
        events = [*new.events, *self._events.get(job.id, ())]
        key = new.key
        return [
            job.id,
            blob(row_bytes(job)),
            blob(fixed_bytes(job)),
            [blob(event_bytes(event)) for event in events],
            change_check.entered(events),
            job.options.tags or False,
            False if job.group is None else job.group,
            False if job.key is None else job.key,
            False if key is None else [f"{key.scope}\0{key.name}", blob(key.content), key.until_ms],
            new.on_clash == "refuse",
            new.must_be_new,
            new.after or False,
            [self._ended.get(on, "") for on in new.after],
            job.options.after_when == "settled",
            False if (beside := beside_bytes(job)) is None else blob(beside),
        ]


def results_of(jobs: Sequence[NewJob], reply: Sequence[Any]) -> list[InsertResult]:
    """The result of each new job. The reply has False for a new one, and 0 for one that an earlier call inserted."""
    return [
        InsertResult(new.job.id, True)
        if not existing
        else InsertResult(existing[0], False, cast('Literal["key", "unique"]', existing[1]))
        for new, existing in zip(jobs, reply, strict=True)
    ]


def refusal_of(jobs: Sequence[NewJob], refused: Sequence[Any], known: EntryFacts) -> MainstayError | None:
    """The error for a refused insert. None: decide again, with what is in `known` now."""
    what, *rest = refused
    if what == "judge":
        statuses = rest[0]
        for on, status in zip(statuses[::2], statuses[1::2], strict=True):
            if status:
                known.ended[on] = status
            else:  # it has become unsettled since
                known.ended.pop(on, None)
        return None
    if what == "stands":
        known.standing = set(rest[0])
        return None
    index = rest[0]
    if what == "key":
        key = jobs[index].key
        assert key is not None
        return change_check.key_conflict(index, key, rest[1])
    if what == "unique":
        return change_check.unique_clash(index, jobs[index], rest[1])
    if what == "new":
        return change_check.already_there(index, rest[1])
    if what == "parent":
        return change_check.no_parent(index, rest[1])
    if what == "after":
        return change_check.no_dependency(index, rest[1], rest[2])
    return change_check.id_conflict(index, rest[1])
