"""The door: which of some new jobs come in, and which were there before."""

from __future__ import annotations

from collections.abc import Sequence

from ...model import Job
from ..judge import id_conflict, key_conflict, no_parent, unique_clash
from ..port import Inserted, Key, NewJob
from .rows import Rows

KeyName = tuple[str, str]
Keys = dict[KeyName, tuple[Key, str]]


class Entry:
    """A plan for one insert: nothing is written before all of it is known to be good."""

    def __init__(self, rows: Rows, keys: Keys, now_ms: int, *, settling: str | None = None) -> None:
        self._rows = rows
        self._settling = settling
        """a job that settles in the same write: its unique key is free by then"""
        self._keys = keys
        self._now_ms = now_ms
        self._new: dict[str, NewJob] = {}
        self._new_keys: Keys = {}
        self._new_unique: dict[str, str] = {}

    def plan(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """Decide on each; raises for the first that cannot be."""
        return [self._decide(index, new) for index, new in enumerate(jobs)]

    def write(self) -> None:
        for new in self._new.values():
            self._rows.write(new.job, new.events, self._now_ms)
        self._keys.update(self._new_keys)

    def _decide(self, index: int, new: NewJob) -> Inserted:
        job = new.job
        if new.key is not None and (found := self._by_key(new.key)) is not None:
            key, existing = found
            if key.content != new.key.content:
                raise key_conflict(index, new.key, existing)
            return Inserted(existing, False, "key")
        if (holder := self._by_unique(job)) is not None:
            if new.on_clash == "refuse":
                raise unique_clash(index, new, holder)
            return Inserted(holder, False, "unique")
        if job.id in self._rows.events or job.id in self._new:
            raise id_conflict(index, job.id)
        if job.parent is not None and job.parent not in self._rows.jobs and job.parent not in self._new:
            raise no_parent(index, job.parent)
        self._new[job.id] = new
        if new.key is not None:
            self._new_keys[new.key.scope, new.key.name] = (new.key, job.id)
        if job.unique_key is not None:
            self._new_unique[job.unique_key] = job.id
        return Inserted(job.id, True)

    def _by_key(self, key: Key) -> tuple[Key, str] | None:
        name = (key.scope, key.name)
        found = self._new_keys.get(name) or self._keys.get(name)
        return found if found is not None and found[0].until_ms > self._now_ms else None

    def _by_unique(self, job: Job) -> str | None:
        if job.unique_key is None:
            return None
        stored = self._rows.unique.get(job.unique_key)
        return self._new_unique.get(job.unique_key) or (stored if stored != self._settling else None)
