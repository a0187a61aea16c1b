"""New jobs on their way in: as the scripts take them, and what those answer.

Whether a job comes in is decided by the script, in one step with writing it (`lua/entry.lua`). What becomes of a job
that waits for one which has settled already is judged here, before it is written: it goes in as what it has become.
The script tells what has settled, and the insert is sent again with that.
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
    """What earlier tries have found out."""

    ended: dict[str, str] = {}
    """the status of each awaited job that has settled, by the id that was given"""
    standing: set[str] = set()
    """units that do not come in, because others stand for them"""


class EntryBatch:
    """Some new jobs, judged by what is known of the jobs they wait for.

    `ended` has the status of each awaited job that has settled, by the id that was given.
    """

    def __init__(self, jobs: Sequence[NewJob], ended: dict[str, str], *, now_ms: int, chain: Chain) -> None:
        self._jobs = jobs
        self._rows = {new.job.id: new.job for new in jobs} if ended else {}
        self._events: dict[str, list[Event]] = {}
        self._moves: dict[str, list[Written]] = {}
        self._ended = dict(ended)
        if ended:
            self._judge(now_ms, chain)
        self.args = [self._arg(new) for new in jobs]

    def written(self, answers: Sequence[Any]) -> list[Written]:
        """What to tell of those that came in."""
        told: list[Written] = []
        for new, met in zip(self._jobs, answers, strict=True):
            if met is False:
                told.append((None, new.job, new.events))
                told += self._moves.get(new.job.id, ())
        return told

    def _judge(self, now_ms: int, chain: Chain) -> None:
        """Move on whoever waits for what has settled, and whoever waits for those."""
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


def answers_of(jobs: Sequence[NewJob], answers: Sequence[Any]) -> list[InsertResult]:
    """What became of each."""
    return [
        InsertResult(new.job.id, True)
        if met is False
        else InsertResult(met[0], False, cast('Literal["key", "unique"]', met[1]))
        for new, met in zip(jobs, answers, strict=True)
    ]


def refusal_of(jobs: Sequence[NewJob], refused: Sequence[Any], known: EntryFacts) -> MainstayError | None:
    """Why nothing was written. None: it must be decided anew, by what is in `known` now."""
    what, *rest = refused
    if what == "judge":
        told = rest[0]
        for on, status in zip(told[::2], told[1::2], strict=True):
            if status:
                known.ended[on] = status
            else:  # it was taken up again meanwhile
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
