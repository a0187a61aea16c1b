"""Submitters and workers that use one store at the same time, and note what they did.

Run as a program, it is one of them: actors.py URL ROLE NAME PLAN FILE. It says that it is ready, and begins when it is
sent a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from mainstay.clock import SystemClock
from mainstay.errors import NotLeader
from mainstay.lifecycle import Move
from mainstay.model import PLACE_QUEUE, IdSource, Job, Leadership, Session
from mainstay.stores import Change, ChangeResult, JobStore, NewJob, Query, open_store
from mainstay.testing import new_job
from tests.conformance.history import Entry, History, read, write
from tests.conformance.patience import patiently
from tests.conformance.world import World

ROOT = Path(__file__).parents[2]
QUEUES = ("a", "b")
LIMITED = "scarce"
LIMIT = 3


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is to do."""

    submitters: int
    each: int
    """jobs of each submitter's own"""
    shared: int
    """jobs that every submitter submits, under one idempotency key each"""
    parent: str = ""
    """the job whose units leaders assign"""

    @property
    def total(self) -> int:
        return self.submitters * self.each + self.shared


class Actor:
    def __init__(self, store: JobStore, name: str, plan: Plan) -> None:
        self.history: History = []
        self._store = store
        self._name = name
        self._plan = plan
        # seeded with the name: every actor does something else, and the same in every run
        self._rng = random.Random(name)
        self._ids = IdSource(random.Random(f"ids of {name}"))
        self._clock = SystemClock()
        self._world = World(store, self._clock)  # type: ignore[arg-type]

    def _note(
        self,
        began: float,
        what: Literal["insert", "claim", "complete", "again", "release", "reap"],
        job: Job,
        outcome: str,
        job_id: str | None = None,
    ) -> None:
        at = time.monotonic()
        self.history.append(
            Entry(began, at, self._name, what, job_id or job.id, job.token, outcome, job.concurrency_key)
        )


class Submitter(Actor):
    async def run(self) -> None:
        wanted = [self._own() for _ in range(self._plan.each)]
        wanted += [self._shared(n) for n in range(self._plan.shared)]
        self._rng.shuffle(wanted)
        while wanted:
            batch = [wanted.pop() for _ in range(min(len(wanted), self._rng.randint(1, 20)))]
            began = time.monotonic()
            for new, made in zip(batch, await patiently(lambda batch=batch: self._store.insert(batch)), strict=True):
                self._note(began, "insert", new.job, "created" if made.created else "known", made.id)
            await asyncio.sleep(0)  # a store that never waits must not keep the others from the loop

    def _own(self) -> NewJob:
        key = LIMITED if self._rng.random() < 0.1 else None
        queue = self._rng.choice(QUEUES)
        priority = self._rng.randint(-2, 2)
        return new_job(self._clock, self._ids, queue=queue, priority=priority, concurrency_key=key, actor=self._name)

    def _shared(self, n: int) -> NewJob:
        return new_job(self._clock, self._ids, queue=QUEUES[0], key=f"shared-{n}", actor=self._name)


class Worker(Actor):
    """Claims, completes, fails, releases, loses answers, and now and then drops dead and comes back as a ghost."""

    def __init__(self, store: JobStore, name: str, plan: Plan) -> None:
        super().__init__(store, name, plan)
        self._lives = 0
        self._session = ""
        self._abandoned: list[Job] = []

    async def run(self) -> None:
        await self._be_born()
        async with self._store.wake([f"queue:{queue}" for queue in QUEUES]) as wake:
            while True:
                await asyncio.sleep(0)
                claimed = await self._claim()
                if claimed:
                    await self._work(claimed)
                if not claimed or self._rng.random() < 0.1:
                    await self._die_and_haunt()
                    await self._reap()
                if not claimed:
                    if await self._all_done():
                        break
                    await wake.wait(0.05)
        await self._store.close_session(self._session)

    async def _be_born(self) -> None:
        self._lives += 1
        self._session = f"{self._name}-{self._lives}"
        await self._store.open_session(Session(id=self._session, pid=os.getpid(), lease_s=600))

    async def _claim(self) -> list[Job]:
        began = time.monotonic()
        queues, n = self._rng.sample(QUEUES, 2), self._rng.randint(1, 30)
        claimed = await patiently(lambda: self._store.claim(queues, self._session, n))
        for job in claimed:
            self._note(began, "claim", job, "claimed")
        return claimed

    async def _work(self, claimed: list[Job]) -> None:
        done, lost, released = [], [], []
        for job in claimed:
            fate = self._rng.random()
            if fate < 0.05 and job.concurrency_key is None:
                self._abandoned.append(job)
            elif fate < 0.15 and job.token < 5:
                released.append(self._change(job, *self._rng.choice([("pending",), ("failed", "pending")])))
            elif fate < 0.30:
                lost.append(self._change(job, "succeeded"))
            else:
                done.append(self._change(job, "succeeded"))
        for what, changes in (("release", released), ("complete", done), ("complete", lost), ("again", lost)):
            await self._send(what, changes)  # type: ignore[arg-type]

    async def _die_and_haunt(self) -> None:
        """The session ends with jobs in its hands; it tries to complete them all the same, late."""
        if not self._abandoned:
            return
        await self._store.close_session(self._session)
        ghosts, self._abandoned = [self._change(job, "succeeded") for job in self._abandoned], []
        if self._rng.random() < 0.5:
            await self._reap()
        await self._be_born()
        await self._send("complete", ghosts)

    async def _reap(self) -> None:
        began = time.monotonic()
        late = await self._store.overdue()
        changes = [self._world.change(each.job, "timed_out", "pending", actor=self._name) for each in late]
        for change, answer in zip(changes, await patiently(lambda: self._store.apply(changes)), strict=True):
            self._note(began, "reap", change.before, answer.outcome)

    def _change(self, job: Job, *moves: str) -> Change:
        return self._world.change(job, *moves, holder=self._session)

    async def _send(
        self, what: Literal["complete", "again", "release"], changes: Sequence[Change]
    ) -> list[ChangeResult]:
        if not changes:
            return []
        began = time.monotonic()
        answers = await patiently(lambda: self._store.apply(changes))
        for change, answer in zip(changes, answers, strict=True):
            self._note(began, what, change.before, answer.outcome)
        return answers

    async def _all_done(self) -> bool:
        stats = await self._store.stats()
        return sum(queue.counts.get("succeeded", 0) for queue in stats.queues.values()) == self._plan.total


class Leader(Actor):
    """Assigns units in gangs while it leads, also when it no longer does; confirms and ends what is assigned to it."""

    async def run(self) -> None:
        await self._store.open_session(Session(id=self._name, pid=os.getpid(), lease_s=600, node=self._name))
        lead = await self._store.lead("placement", self._name, 5)
        rests = 0
        while units := await self._open_units():
            rests -= 1
            if rests < 0 and (self._rng.random() < 0.5 or lead.holder != self._name):
                lead = await self._store.lead("placement", self._name, 5)
            pending = [unit for unit in units if unit.status == "pending"]
            if pending and lead.holder == self._name:
                await self._assign(self._rng.sample(pending, min(3, len(pending))), lead)
            if pending and rests < 0 and lead.holder == self._name and self._rng.random() < 0.7:
                await self._store.resign(lead)  # and go on as if it led: the store must refuse it
                rests = 5  # the others lead now
            await self._serve()
            await asyncio.sleep(0)

    async def _open_units(self) -> list[Job]:
        page = await self._store.find(Query(kind="node", queue=PLACE_QUEUE, parent=self._plan.parent), limit=500)
        return [unit for unit in page.jobs if unit.settled_ms is None]

    async def _assign(self, units: list[Job], lead: Leadership) -> None:
        now_ms = self._clock.now_ms()
        sessions = sorted(each.id for each in await self._store.sessions() if each.node)
        gang = {unit.id: unit.token + 1 for unit in units}
        moves = [
            Move(
                to="dispatched",
                fields={"token": unit.token + 1, "session": self._rng.choice(sessions), "claimed_ms": now_ms},
                details={"gang": gang},
            )
            for unit in units
        ]
        changes = [self._world.change(unit, move, actor=self._name) for unit, move in zip(units, moves, strict=True)]
        with contextlib.suppress(NotLeader):
            await patiently(lambda: self._store.apply(changes, lead=lead, together=True))

    async def _serve(self) -> None:
        [pulse] = await self._store.beat([self._name])
        rows = [row for row in await self._store.get(pulse.assigned) if row is not None and row.status == "dispatched"]
        for row in rows:
            if row.token < 4 and self._rng.random() < 0.3:
                await self._end(row, "pending")
            elif (begun := await self._end(row, "running")) is not None:
                await self._end(begun, "succeeded")

    async def _end(self, row: Job, to: str) -> Job | None:
        change = self._world.change(row, to, holder=self._name)
        [result] = await patiently(lambda: self._store.apply([change]))
        return result.job if result.outcome == "applied" else None


ROLES: dict[str, type[Submitter | Worker | Leader]] = {"submitter": Submitter, "worker": Worker, "leader": Leader}


async def in_processes(url: str, plan: Plan, folder: Path, *, workers: int, leaders: int = 0) -> History:
    """Have submitters and workers share a store, each in a process of its own, begun together: what they noted."""
    roles = [("submitter", n) for n in range(plan.submitters)] + [("worker", n) for n in range(workers)]
    roles += [("leader", n) for n in range(leaders)]
    files = {f"{role}-{n}": folder / f"{role}-{n}.json" for role, n in roles}
    running = [
        subprocess.Popen(
            [sys.executable, __file__, url, role, name, msgspec.json.encode(plan).decode(), str(files[name])],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for role, name in ((role, f"{role}-{n}") for role, n in roles)
    ]
    try:
        assert [await asyncio.to_thread(_first_line, process) for process in running] == ["ready\n"] * len(running)
        for process in running:
            _go(process)
        assert [await asyncio.to_thread(process.wait) for process in running] == [0] * len(running)
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return [entry for file in files.values() for entry in read(file)]


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


async def main(url: str, role: str, name: str, plan: str, file: str) -> None:
    store = await open_store(url)
    actor = ROLES[role](store, name, msgspec.json.decode(plan, type=Plan))
    # the whole work takes less time than the start of an interpreter: without a common start the first does it alone
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await actor.run()
    await store.close()
    write(Path(file), actor.history)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
