"""Inserting jobs: which are new, and which stand for an existing job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...model import Job
from ..change_check import (
    GONE,
    already_there,
    id_conflict,
    is_settled,
    key_conflict,
    no_dependency,
    no_parent,
    unique_clash,
    was_inserted,
)
from ..port import InsertResult, Key, NewJob
from .rows import Rows

KeyName = tuple[str, str]
Keys = dict[KeyName, tuple[Key, str]]


class InsertPlan:
    """A plan for one insert: nothing is written before every job is accepted."""

    def __init__(
        self,
        rows: Rows,
        keys: Keys,
        now_ms: int,
        *,
        settling: Collection[str] = (),
        taking: Mapping[str, str] | None = None,
    ) -> None:
        self._rows = rows
        self._settling = settling
        """jobs that settle in the same write, which frees their unique keys"""
        self._keys = keys
        self._now_ms = now_ms
        self._new: dict[str, NewJob] = {}
        self._new_keys: Keys = {}
        self._new_unique = dict(taking or {})
        """unique key -> the job that takes it in the same write"""
        self._stands: dict[str, str] = {}
        """new job -> the existing job that stands for it"""
        self._after: dict[str, list[str]] = {}

    def plan(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        """Decide on each; raises for the first that is refused."""
        results = []
        for index, new in enumerate(jobs):
            result = self._decide(index, new)
            if not result.created:
                if new.must_be_new:
                    raise already_there(index, result.id)
                self._stands[new.job.id] = result.id
            results.append(result)
        return results

    def write(self) -> None:
        rows = self._rows
        for new in self._new.values():
            rows.write(new.job, new.events, self._now_ms)
        self._keys.update(self._new_keys)
        for job_id, awaited in self._after.items():
            rows.waits.add(job_id, awaited)
        for on in {on: None for awaited in self._after.values() for on in awaited}:
            row = rows.jobs.get(on)
            if row is None or is_settled(row):
                rows.waits.settled(on, GONE if row is None else row.status)

    def _decide(self, index: int, new: NewJob) -> InsertResult:
        job = new.job
        if self._was_inserted(new):
            return InsertResult(job.id, True)
        if new.key is not None and (held := self._by_key(new.key)) is not None:
            key, existing = held
            if key.content != new.key.content:
                raise key_conflict(index, new.key, existing)
            return InsertResult(existing, False, "key")
        if (holder := self._by_unique(job)) is not None:
            if new.on_clash == "refuse":
                raise unique_clash(index, new, holder)
            return InsertResult(holder, False, "unique")
        if job.id in self._rows.events or job.id in self._new:
            raise id_conflict(index, job.id)
        if job.parent is not None and job.parent not in self._rows.jobs and job.parent not in self._new:
            raise no_parent(index, job.parent)
        if new.after:
            self._after[job.id] = [self._awaited(index, place, on) for place, on in enumerate(new.after)]
        self._new[job.id] = new
        if new.key is not None:
            self._new_keys[new.key.scope, new.key.name] = (new.key, job.id)
        if job.unique_key is not None:
            self._new_unique[job.unique_key] = job.id
        return InsertResult(job.id, True)

    def _was_inserted(self, new: NewJob) -> bool:
        events = self._rows.events.get(new.job.id) or []
        return bool(events) and was_inserted(new, events[0], self._rows.jobs.get(new.job.id))

    def _awaited(self, index: int, place: int, on: str) -> str:
        if on in self._stands:
            return self._stands[on]
        if on not in self._rows.jobs and on not in self._new:
            raise no_dependency(index, place, on)
        return on

    def _by_key(self, key: Key) -> tuple[Key, str] | None:
        name = (key.scope, key.name)
        held = self._new_keys.get(name) or self._keys.get(name)
        return held if held is not None and held[0].until_ms > self._now_ms else None

    def _by_unique(self, job: Job) -> str | None:
        if job.unique_key is None:
            return None
        stored = self._rows.unique.get(job.unique_key)
        return self._new_unique.get(job.unique_key) or (stored if stored not in self._settling else None)
