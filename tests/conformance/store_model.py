"""A store driven at random beside a plain model of what it should hold.

The model knows nothing of stores: a dictionary of jobs with the few values that matter, and the rules of
claiming written down a second time. After every step the two must agree.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from mainstay.lifecycle import Move, table_of
from mainstay.model import AWAITS_MS, Job, Options, QueueSettings
from mainstay.stores import Change, ClaimReport, InsertResult, NewJob, Overdue
from mainstay.testing import VirtualClock
from tests.conformance.adapters import Adapter
from tests.conformance.world import World

QUEUES = ("a", "b")
LIMIT = 1
LEASE_S = 8.0
HELD = ("running", "cancelling")
SETTLED = ("succeeded", "failed", "cancelled", "quarantined", "skipped")


class Known(msgspec.Struct):
    """A job as the model remembers it."""

    queue: str
    limited: bool
    rank: int
    due_ms: int
    status: str
    token: int = 0
    holder: str | None = None
    starts: int = 0
    failures: int = 0
    releases: int = 0
    losses: int = 0
    crashes: int = 0
    started: bool = False
    story: list[str] = []
    """every status it ever had"""
    after: list[str] = []
    """what it waits for, as far as that has not ended"""
    any_end: bool = False
    fails: bool = False
    """what a dependency that did not succeed makes of it"""

    @property
    def awaits(self) -> bool:
        return self.due_ms == AWAITS_MS and self.status == "scheduled"

    def go(self, *statuses: str) -> None:
        self.story = [*self.story, *statuses]
        self.status = statuses[-1]
        if self.status not in (*HELD, "dispatched"):
            self.holder, self.started = None, False

    def put_off(self, due_ms: int) -> None:
        self.rank += due_ms - self.due_ms
        self.due_ms = due_ms


class StoreBesideModel(RuleBasedStateMachine):
    adapter: Adapter

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="mainstay-"))
        self.clock = VirtualClock()
        self.rng = random.Random(11)
        self.jobs: dict[str, Known] = {}
        self.units: dict[str, Known] = {}
        self.keys: dict[str, str] = {}
        self.paused: set[str] = set()
        self.beats: dict[str, int] = {}
        self.opened = 0
        self.sent: list[Change] = []
        self.inserted: list[tuple[list[NewJob], list[InsertResult]]] = []
        self.old_rows: list[Job] = []
        """rows as they were when claimed: what ghosts act upon"""
        self.world = World(self.run(self.adapter.open(self.folder, self.clock)), self.clock)
        self.run(self.world.store.set_limit("k", LIMIT))
        self.open_session()
        self.open_session()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.world.store.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self.adapter.clear(self.folder)
        shutil.rmtree(self.folder)

    def open_session(self) -> None:
        self.opened += 1
        name = f"s{self.opened}"
        self.run(self.world.open(name, lease_s=LEASE_S))
        self.beats[name] = self.clock.lease_ms()

    def pick(self, n: int, *statuses: str) -> str | None:
        """One of the jobs in these statuses."""
        found = [job_id for job_id, known in self.jobs.items() if known.status in statuses]
        return found[n % len(found)] if found else None

    def write(self, job: Job, *moves: str | Move, **more: Any) -> None:
        """Make moves that must succeed, and remember them."""
        change = self.world.change(job, *moves, **more)
        [answer] = self.run(self.world.store.apply([change]))
        assert answer.outcome == "applied"
        self.sent.append(change)

    def moved(self, job_id: str, *statuses: str) -> None:
        """Remember moves, and what the end of a job means for those who wait for it."""
        self.jobs[job_id].go(*statuses)
        ended = [job_id] if statuses[-1] in SETTLED else []
        while ended:
            on = ended.pop(0)
            for each, known in self.jobs.items():
                if on in known.after and self.follow(known, on):
                    ended.append(each)

    def follow(self, known: Known, on: str) -> bool:
        """The end of one it waits for; True if that is its own end."""
        known.after = [each for each in known.after if each != on]
        if not known.awaits:
            return False
        if not known.any_end and self.jobs[on].status != "succeeded":
            known.put_off(self.clock.now_ms())
            known.go("failed" if known.fails else "skipped")
            return True
        if not known.after:
            known.put_off(self.clock.now_ms())
            known.go("pending")
        return False

    def insert(self, *news: NewJob) -> list[InsertResult]:
        """Insert, and remember the answer."""
        made: list[InsertResult] = self.run(self.world.store.insert(news))
        self.inserted.append((list(news), made))
        return made

    def row(self, job_id: str) -> Job:
        row: Job = self.run(self.world.row(job_id))
        return row

    # submitting and claiming ------------------------------------------------------------------------

    @initialize(limited=st.lists(st.booleans(), min_size=4, max_size=8))
    def begin(self, limited: list[bool]) -> None:
        """Start with work to do: most of what can go wrong needs several jobs that compete."""
        for n, one in enumerate(limited):
            self.submit_one(QUEUES[n % 2], 0, 0, one, None)
        self.take(min(self.beats), 3, QUEUES)

    @rule(
        queue=st.sampled_from(QUEUES),
        priority=st.integers(-2, 2),
        delay_s=st.sampled_from([0, 0, 5]),
        limited=st.booleans(),
        key=st.sampled_from([None, None, "x", "y"]),
    )
    def submit(self, queue: str, priority: int, delay_s: int, limited: bool, key: str | None) -> None:
        self.submit_one(queue, priority, delay_s, limited, key)

    def submit_one(self, queue: str, priority: int, delay_s: int, limited: bool, key: str | None) -> None:
        new = self.world.new(
            queue=queue, priority=priority, delay_s=delay_s, key=key, concurrency_key="k" if limited else None
        )
        [made] = self.insert(new)
        assert made.created == (key is None or key not in self.keys)
        if not made.created:
            assert made.id == self.keys[key or ""]
            return
        if key is not None:
            self.keys[key] = made.id
        due_ms = self.clock.now_ms() + delay_s * 1000
        status = "scheduled" if delay_s else "pending"
        rank = due_ms - priority * 60_000
        self.jobs[made.id] = Known(queue, limited, rank, due_ms, status, story=[status])

    @rule(
        queue=st.sampled_from(QUEUES),
        which=st.lists(st.integers(0, 99), min_size=1, max_size=3),
        any_end=st.booleans(),
        fails=st.booleans(),
        limited=st.booleans(),
    )
    def submit_waiting(self, queue: str, which: list[int], any_end: bool, fails: bool, limited: bool) -> None:
        """Wait for some of the newest jobs: the old ones have mostly ended."""
        newest = sorted(self.jobs)[-6:]
        after = list(dict.fromkeys(newest[n % len(newest)] for n in which))
        options = Options(after_when="settled" if any_end else "succeeded", after_failed="fail" if fails else "skip")
        new = self.world.new(queue=queue, after=after, options=options, concurrency_key="k" if limited else None)
        [made] = self.insert(new)
        known = Known(queue, limited, AWAITS_MS, AWAITS_MS, "scheduled", story=["scheduled"])
        known.after, known.any_end, known.fails = after, any_end, fails
        self.jobs[made.id] = known
        for on in after:
            if self.jobs[on].status in SETTLED:
                self.follow(known, on)
        assert self.run(self.world.store.awaited(made.id)) == after

    @rule(which=st.integers(0, 5), n=st.integers(1, 4), queues=st.sampled_from([QUEUES, ("a",), ("b",)]))
    def claim(self, which: int, n: int, queues: tuple[str, ...]) -> None:
        self.take(sorted(self.beats)[which % len(self.beats)], n, queues)

    def take(self, session: str, n: int, queues: tuple[str, ...], mark: str | None = None) -> list[Job]:
        claimed: list[Job] = self.run(self.world.store.claim(queues, session, n, mark=mark))

        expected = self.expected_claims(n, [queue for queue in queues if queue not in self.paused])
        assert [job.id for job in claimed] == expected
        self.follow_promotions()
        for job in claimed:
            known = self.jobs[job.id]
            known.go("running")
            known.token += 1
            known.holder = session
        self.old_rows += claimed
        return claimed

    def expected_claims(self, n: int, queues: list[str]) -> list[str]:
        now = self.clock.now_ms()
        ready = [
            (known.rank, job_id)
            for job_id, known in self.jobs.items()
            if known.queue in queues
            and (known.status == "pending" or (known.status == "scheduled" and known.due_ms <= now))
        ]
        free = LIMIT - sum(known.limited and known.holder is not None for known in self.jobs.values())
        taken: list[str] = []
        for _, job_id in sorted(ready):
            if len(taken) == n:
                break
            if self.jobs[job_id].limited:
                if free == 0:
                    continue
                free -= 1
            taken.append(job_id)
        return taken

    def follow_promotions(self) -> None:
        """When exactly a due row is promoted is the store's business; that it is before it runs is not."""
        now = self.clock.now_ms()
        for job_id, known in self.jobs.items():
            if known.status == "scheduled" and known.due_ms <= now and self.row(job_id).status != "scheduled":
                known.go("pending")

    # moving -----------------------------------------------------------------------------------------

    @rule(n=st.integers(0, 99))
    def start(self, n: int) -> None:
        if (job_id := self.pick(n, *HELD)) is None:
            return
        known = self.jobs[job_id]
        report = ClaimReport(
            job_id=job_id, session=known.holder or "", token=known.token, started_ms=self.clock.now_ms()
        )
        assert self.run(self.world.store.report([report])) == [True]
        known.starts += not known.started
        known.started = True

    @rule(n=st.integers(0, 99))
    def complete(self, n: int) -> None:
        if (job_id := self.pick(n, *HELD)) is None:
            return
        known = self.jobs[job_id]
        self.write(self.row(job_id), "succeeded", holder=known.holder)
        self.moved(job_id, "succeeded")

    @precondition(lambda self: self.sent)
    @rule(n=st.integers(0, 99))
    def send_again(self, n: int) -> None:
        """The acknowledgement was lost, and much may have happened since."""
        change = self.sent[-1 - n % len(self.sent)]
        [answer] = self.run(self.world.store.apply([change]))
        assert answer.outcome == "already_applied"

    @rule(n=st.integers(0, 99), then=st.sampled_from(["failed", "scheduled", "quarantined"]))
    def fail(self, n: int, then: str) -> None:
        if (job_id := self.pick(n, "running")) is None:
            return
        known = self.jobs[job_id]
        moves = [Move(to="failed", fields={"failures": known.failures + 1})]
        if then == "scheduled":
            due_ms = self.clock.now_ms() + 3_000
            moves.append(Move(to="scheduled", fields={"due_ms": due_ms}))
            known.put_off(due_ms)
        elif then == "quarantined":
            moves.append(Move(to="quarantined"))
        self.write(self.row(job_id), *moves, holder=known.holder)
        known.failures += 1
        self.moved(job_id, *(move.to for move in moves))

    @rule(n=st.integers(0, 99))
    def release(self, n: int) -> None:
        if (job_id := self.pick(n, "running")) is None:
            return
        known = self.jobs[job_id]
        back = Move(to="pending", fields={"releases": known.releases + 1})
        self.write(self.row(job_id), back, holder=known.holder)
        known.releases += 1
        known.go("pending")

    @rule(n=st.integers(0, 99))
    def cancel(self, n: int) -> None:
        self.cancel_one(self.pick(n, "running", "scheduled", "failed", "quarantined", "cancelling"))

    @rule(n=st.integers(0, 99))
    def cancel_waiting(self, n: int) -> None:
        self.cancel_one(self.pick(n, "pending"))

    def cancel_one(self, job_id: str | None) -> None:
        if job_id is None:
            return
        known = self.jobs[job_id]
        to = "cancelling" if known.status == "running" else "cancelled"
        self.write(self.row(job_id), to)
        self.moved(job_id, to)

    @rule(n=st.integers(0, 99))
    def retry_by_hand(self, n: int) -> None:
        if (job_id := self.pick(n, "failed", "quarantined")) is None:
            return
        self.write(self.row(job_id), "pending")
        self.jobs[job_id].go("pending")

    @precondition(lambda self: self.old_rows)
    @rule(n=st.integers(0, 99))
    def haunt(self, n: int) -> None:
        """A worker that may have lost its claim long ago completes the job as it saw it."""
        ghost = self.old_rows[n % len(self.old_rows)]
        known = self.jobs[ghost.id]
        if known.token == ghost.token and known.holder == ghost.session:
            return
        answer = self.run(self.world.move(ghost, "succeeded", holder=ghost.session))
        same = known.token == ghost.token and known.status == "succeeded"
        assert answer.outcome == ("already_applied" if same else "stale")

    # time, sessions and pause -------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 3, 5, 9]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(which=st.integers(0, 5))
    def beat(self, which: int) -> None:
        session = sorted(self.beats)[which % len(self.beats)]
        [pulse] = self.run(self.world.store.beat([session]))
        self.beats[session] = self.clock.lease_ms()
        asked = {i for i, known in self.jobs.items() if known.holder == session and known.status == "cancelling"}
        assigned = {i for i, known in self.units.items() if known.holder == session and known.status == "dispatched"}
        assert (pulse.known, set(pulse.cancelling), set(pulse.assigned)) == (True, asked, assigned)

    @rule()
    def reap(self) -> None:
        dead = {name for name, at in self.beats.items() if self.clock.lease_ms() - at > LEASE_S * 1000}
        self.bury(dead)

    def bury(self, dead: set[str]) -> None:
        overdue = self.run(self.world.store.overdue())
        everything = {**self.jobs, **self.units}
        assert {late.job.id for late in overdue} == {i for i, known in everything.items() if known.holder in dead}
        for late in overdue:
            self.take_back(late, everything[late.job.id])
        for session in dead:
            assert [pulse.known for pulse in self.run(self.world.store.beat([session]))] == [False]
            del self.beats[session]
            self.open_session()

    def take_back(self, late: Overdue, known: Known) -> None:
        """What a sweep does with a row whose holder is dead."""
        if known.status == "cancelling":
            moves = [Move(to="cancelled")]
        elif known.started:
            moves = [Move(to="timed_out", fields={"crashes": known.crashes + 1}), Move(to="pending")]
            known.crashes += 1
        else:
            known.releases += 1
            known.losses += 1
            moves = [Move(to="pending", fields={"releases": known.releases, "losses": known.losses})]
        self.write(late.job, *moves, actor="sweeper")
        if late.job.is_unit:
            known.go(*(move.to for move in moves))
        else:
            self.moved(late.job.id, *(move.to for move in moves))

    @rule(queue=st.sampled_from(QUEUES), paused=st.booleans())
    def pause(self, queue: str, paused: bool) -> None:
        self.run(self.world.store.set_queue(QueueSettings(name=queue, paused=paused)))
        (self.paused.add if paused else self.paused.discard)(queue)
        self.follow_promotions()

    @precondition(lambda self: self.adapter.persistent)
    @rule()
    def crash(self) -> None:
        """Everything in memory is gone; what was acknowledged is not."""
        self.run(self.world.store.close())
        self.clock.advance(LEASE_S + 1)
        self.world.store = self.run(self.adapter.open(self.folder, self.clock))
        self.bury(set(self.beats))

    # agreement ----------------------------------------------------------------------------------------

    @invariant()
    def rows_agree(self) -> None:
        audited = self.run(self.world.store.audit(limit=10_000))
        everything = {**self.jobs, **self.units}
        assert [found.job.id for found in audited] == sorted(everything), "every job exactly once"
        for found in audited:
            row, known = found.job, everything[found.job.id]
            assert (row.status, row.token, row.session) == (known.status, known.token, known.holder)
            assert (row.starts, row.failures) == (known.starts, known.failures)
            assert (row.crashes, row.releases, row.losses) == (known.crashes, known.releases, known.losses)
            assert (row.settled_ms is not None) == (known.status in SETTLED)

    @invariant()
    def histories_agree(self) -> None:
        everything = {**self.jobs, **self.units}
        for found in self.run(self.world.store.audit(limit=10_000)):
            assert self.world.store.chain.first_break(found.job, found.events) is None
            assert [event.to for event in found.events] == everything[found.job.id].story
            for event in found.events[1:]:
                assert event.source is not None
                assert table_of(found.job.parent).allows(event.source, event.to)

    @invariant()
    def statistics_agree(self) -> None:
        counted: dict[str, dict[str, int]] = {}
        for known in self.jobs.values():
            counts = counted.setdefault(known.queue, {})
            counts[known.status] = counts.get(known.status, 0) + 1
        stats = self.run(self.world.store.stats())
        assert {name: queue.counts for name, queue in stats.queues.items() if queue.counts} == counted
        assert stats.aside == 0

    @invariant()
    def the_limit_is_kept_and_the_check_is_clean(self) -> None:
        assert sum(known.limited and known.holder is not None for known in self.jobs.values()) <= LIMIT
        assert self.run(self.world.store.check()) == []
