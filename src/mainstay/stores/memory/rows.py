"""The tables of the memory store and their indexes, kept in step by one writer: `Rows.write`."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from ...lifecycle import Chain, Event
from ...model import Job, Lane, route_of
from ..bounds import RATE_MINUTES
from ..change_check import GONE, dependant_move, entered, falls_due, freed, is_settled, keeps_waiting, slot, topics
from ..port import Written
from ..rates import first_rate_minute, per_minute
from .ranked_ids import RankedIds
from .waits import Waits


class Rows:
    """Jobs and events, with every index that the port needs.

    The consequences of a write collect in `woken`, `freed`, `waits.over` and `written` until the operation ends.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.ids: list[str] = []
        self.events: dict[str, list[Event]] = {}
        self.ready: defaultdict[str, RankedIds] = defaultdict(RankedIds)
        self.due: defaultdict[str, RankedIds] = defaultdict(RankedIds)
        self.expiring = RankedIds()
        self.blocked: defaultdict[str, defaultdict[str, RankedIds]] = defaultdict(lambda: defaultdict(RankedIds))
        self.routed: defaultdict[str, defaultdict[str, RankedIds]] = defaultdict(lambda: defaultdict(RankedIds))
        """by queue and route: rows whose task is missing in a session of their queue"""
        self.slots: defaultdict[str, set[str]] = defaultdict(set)
        self.held: defaultdict[str, set[str]] = defaultdict(set)
        self.kinds: defaultdict[str, set[str]] = defaultdict(set)
        """jobs of all kinds except `task`: few among very many tasks"""
        self.unique: dict[str, str] = {}
        self.units: defaultdict[str, set[str]] = defaultdict(set)
        self.open_units: Counter[str] = Counter()
        self.unit_counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.moves: dict[int, Counter[str]] = {}
        self.woken: Counter[str] = Counter()
        self.written: list[Written] = []
        self.freed: Counter[str] = Counter()
        self.waits = Waits()
        self.touch: Callable[[str], None] = lambda _: None
        """called with the id of a job before its row or its events change"""

    def write(self, after: Job, events: Sequence[Event], now_ms: int) -> None:
        """Insert or replace one row, and append its events."""
        self.touch(after.id)
        before = self.jobs.get(after.id)
        self.jobs[after.id] = after
        if before is None:
            self._add_id(after.id)
            self.events.setdefault(after.id, [])
        else:
            self._unindex(before)
            if key := freed(before, after):
                self.freed[key] += 1
        if falls_due(before, after) and self._comes_first(after, now_ms):
            topic = f"queue:{after.queue}"
            self.woken[topic] = max(self.woken[topic], 1)
        self._index(after)
        self.woken.update(topics(before, after))
        if events:
            self.events[after.id].extend(events)
            self.written.append((before, after, events))
            self._rate(entered(events), now_ms)
        if self.waits.open and is_settled(after):
            self.waits.settled(after.id, after.status)

    def remove(self, job: Job, left: Sequence[Event] = ()) -> None:
        """Remove a row and its events; the events `left` stay."""
        self.touch(job.id)
        del self.jobs[job.id]
        del self.ids[bisect_left(self.ids, job.id)]
        self._unindex(job)
        if key := freed(job, None):
            self.freed[key] += 1
        if left:
            self.events[job.id] = list(left)
        else:
            del self.events[job.id]
        self.waits.forget(job.id)
        self.waits.settled(job.id, GONE)

    def place(self, rows: Mapping[str, Job | None]) -> None:
        """Set rows to a given state (None: gone), without any consequences. All at once: one row may take over what
        another releases."""
        for job_id in rows:
            if (before := self.jobs.pop(job_id, None)) is not None:
                self._unindex(before)
                del self.ids[bisect_left(self.ids, job_id)]
        for job_id, after in rows.items():
            if after is not None:
                self.jobs[job_id] = after
                self._add_id(job_id)
                self._index(after)

    def family(self, job: Job) -> list[Job]:
        """A job and its units."""
        return [job, *(self.jobs[unit] for unit in sorted(self.units.get(job.id, ())))]

    def free_slots(self, key: str, limits: dict[str, int]) -> int | None:
        """The free slots of a key; None without a limit."""
        most = limits.get(key)
        return None if most is None else max(most - len(self.slots.get(key, ())), 0)

    def promote_blocked(self, limits: dict[str, int], now_ms: int) -> None:
        """Make blocked rows ready for the slots that became free.

        The best of *each* queue becomes ready, because the best of all may be in a paused queue or in one without
        workers; the claim counts the key again.
        """
        while self.freed:
            key, n = self.freed.popitem()
            free = self.free_slots(key, limits)
            n = n if free is None else min(n, free)
            for line in list(self.blocked.get(key, {}).values()):
                for _ in range(n):
                    if (best := line.first()) is None:
                        break
                    row = self.jobs[best[1]]
                    self.write(msgspec.structs.replace(row, lane=Lane.READY), (), now_ms)

    def follow_waits(self, chain: Chain, now_ms: int) -> None:
        """Move on the jobs that waited for settled jobs, and those that waited for them."""
        over = self.waits.over
        while over:
            on, status = over.popleft()
            for job_id, more in self.waits.close(on):
                if keeps_waiting(status, more=more):
                    continue
                moved = dependant_move(self.jobs.get(job_id), on, status, more=more, now_ms=now_ms, chain=chain)
                if moved is not None:
                    self.write(moved.job, moved.events, now_ms)

    def stranded(self, limits: dict[str, int]) -> Iterator[tuple[str, str]]:
        """(key, queue) with blocked rows although the key has a free slot and no ready row."""
        for key, lines in self.blocked.items():
            if self.free_slots(key, limits) == 0:
                continue
            for queue, line in lines.items():
                ready = self.ready.get(queue, ())
                if len(line) and not any(self.jobs[job_id].concurrency_key == key for job_id in ready):
                    yield key, queue

    def rates(self, now_ms: int) -> dict[str, float]:
        """Moves into each status per minute."""
        first = first_rate_minute(now_ms)
        total: Counter[str] = Counter()
        for minute, counted in self.moves.items():
            if minute >= first:
                total.update(counted)
        return per_minute(
            total,
            now_ms=now_ms,
            first_counted=min(self.moves, default=None),
            oldest_job=self.ids[0] if self.ids else None,
        )

    def _comes_first(self, job: Job, now_ms: int) -> bool:
        """Whether it is due before every other waiting row of its queue."""
        first = self.due[job.queue].first()
        return first is None or job.due_ms <= first[0] or first[0] <= now_ms

    def count_moves(self, events: Iterable[Event]) -> None:
        """Count moves of other processes, for the rates."""
        for event in events:
            self._rate(entered([event]), event.at_ms)

    def _add_id(self, job_id: str) -> None:
        if self.ids and job_id < self.ids[-1]:
            insort(self.ids, job_id)
        else:
            self.ids.append(job_id)

    def _rate(self, statuses: Sequence[str], now_ms: int) -> None:
        minute = now_ms // 60_000
        if minute not in self.moves:
            self.moves = {m: counted for m, counted in self.moves.items() if m >= minute - RATE_MINUTES}
            self.moves[minute] = Counter()
        self.moves[minute].update(statuses)

    def _index(self, job: Job) -> None:
        if job.lane == Lane.READY:
            self.ready[job.queue].put(job.id, job.rank)
        elif job.lane == Lane.DUE:
            self.due[job.queue].put(job.id, job.due_ms)
        elif job.lane == Lane.BLOCKED and job.concurrency_key is not None:
            self.blocked[job.concurrency_key][job.queue].put(job.id, job.rank)
        elif job.lane == Lane.ROUTED:
            self.routed[job.queue][route_of(job.kind, job.name)].put(job.id, job.rank)
        if job.session is not None:
            self.held[job.session].add(job.id)
        if key := slot(job):
            self.slots[key].add(job.id)
        settled = is_settled(job)
        if job.expires_ms is not None and not settled:
            self.expiring.put(job.id, job.expires_ms)
        if job.unique_key is not None and not settled:
            self.unique.setdefault(job.unique_key, job.id)
        if job.parent is None:
            self.counts[job.queue][job.status] += 1
            if job.kind != "task":
                self.kinds[job.kind].add(job.id)
            return
        self.units[job.parent].add(job.id)
        self.unit_counts[job.parent][job.status] += 1
        if not settled:
            self.open_units[job.parent] += 1

    def _unindex(self, job: Job) -> None:
        if job.lane == Lane.READY:
            self.ready[job.queue].drop(job.id)
        elif job.lane == Lane.DUE:
            self.due[job.queue].drop(job.id)
        elif job.lane == Lane.BLOCKED and job.concurrency_key is not None:
            _drop(self.blocked, job.concurrency_key, job.queue, job.id)
        elif job.lane == Lane.ROUTED:
            _drop(self.routed, job.queue, route_of(job.kind, job.name), job.id)
        self.expiring.drop(job.id)
        if job.session is not None:
            _discard(self.held, job.session, job.id)
        if key := slot(job):
            _discard(self.slots, key, job.id)
        if job.unique_key is not None and self.unique.get(job.unique_key) == job.id:
            del self.unique[job.unique_key]
        if job.parent is None:
            _less(self.counts[job.queue], job.status)
            if job.kind != "task":
                _discard(self.kinds, job.kind, job.id)
            return
        _discard(self.units, job.parent, job.id)
        _less(self.unit_counts[job.parent], job.status)
        if not self.unit_counts[job.parent]:
            del self.unit_counts[job.parent]
        if not is_settled(job):
            _less(self.open_units, job.parent)


def _discard(index: defaultdict[str, set[str]], name: str, job_id: str) -> None:
    index[name].discard(job_id)
    if not index[name]:
        del index[name]


def _drop(index: defaultdict[str, defaultdict[str, RankedIds]], key: str, queue: str, job_id: str) -> None:
    index[key][queue].drop(job_id)
    if not any(index[key].values()):
        del index[key]


def _less(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
