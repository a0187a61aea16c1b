"""A store with a virtual clock, and short words for what tests do to it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from mainstay.lifecycle import Move, completion
from mainstay.lifecycle.invariants import Finding, inspect
from mainstay.model import AWAITS_MS, IdSource, Job, Options, Session
from mainstay.stores import Audited, Change, ChangeResult, JobStore, NewJob, SealedChange
from mainstay.stores.sealed_changes import seal
from mainstay.testing import VirtualClock, new_job

#: what compares a row with what its events seal
SEALED = frozenset(
    {"submit_changed", "result_changed", "payload_changed", "created_time", "settled_time", "due_changed"}
)


class World:
    def __init__(self, store: JobStore, clock: VirtualClock, *, seed: int = 7) -> None:
        """`seed`: of its ids; two that submit to one database in the same millisecond must not share it."""
        self.store = store
        self.clock = clock
        self.ids = IdSource(random.Random(seed))

    def new(self, *, after: Sequence[Job | str] = (), **fields: Any) -> NewJob:
        """A new job; with `after`, one that waits for those."""
        if after:
            fields = {"options": Options(after_when="succeeded", after_failed="skip"), **fields}
            fields |= {"due_ms": AWAITS_MS, "rank": AWAITS_MS, "delay_s": 1}
        new = new_job(self.clock, self.ids, chain=self.store.chain, **fields)
        return msgspec.structs.replace(new, after=tuple(each if isinstance(each, str) else each.id for each in after))

    async def submit(self, **fields: Any) -> Job:
        """Insert one job and read it back."""
        [made] = await self.store.insert([self.new(**fields)])
        return await self.row(made.id)

    async def row(self, job: Job | str) -> Job:
        [found] = await self.store.get([job if isinstance(job, str) else job.id])
        assert found is not None
        return found

    async def open(self, *sessions: str, lease_s: float = 8.0) -> None:
        for session in sessions:
            await self.store.open_session(Session(id=session, lease_s=lease_s))

    async def claim(self, session: str = "s1", n: int = 1, queues: Sequence[str] = ("default",)) -> list[Job]:
        return await self.store.claim(queues, session, n)

    async def running(self, session: str = "s1", **fields: Any) -> Job:
        """Submit one job to a queue of its own and claim it."""
        queue = fields.pop("queue", "own")
        job = await self.submit(queue=queue, **fields)
        [claimed] = await self.store.claim([queue], session, 1)
        assert claimed.id == job.id
        return claimed

    def change(self, job: Job, *moves: str | Move, holder: str | None = None, actor: str = "", **more: Any) -> Change:
        """The change that makes these moves from the row as given."""
        wanted = [move if isinstance(move, Move) else Move(to=move) for move in moves]
        return Change(
            before=job,
            moves=tuple(wanted),
            actor=actor or holder or "operator",
            at_ms=self.clock.now_ms(),
            holder=holder,
            **more,
        )

    def completion(self, job: Job, *, result: bytes | None = None, **more: Any) -> Change:
        """The change by which its holder completes a job, as a worker sends it."""
        holder = job.session or ""
        move = completion(result, starts=job.starts + (job.started_ms is None), started_ms=self.clock.now_ms())
        return self.change(job, move, holder=holder, **more)

    def sealed(self, change: Change) -> SealedChange:
        """The change as the store writes it."""
        made = seal(change, self.store.chain)
        assert isinstance(made, SealedChange)
        return made

    async def move(self, job: Job, *moves: str | Move, **more: Any) -> ChangeResult:
        [answer] = await self.store.apply([self.change(job, *moves, **more)])
        return answer

    async def reap(self, *, to: Sequence[str] = ("timed_out", "pending")) -> list[Job]:
        """What a sweeper does with everything overdue."""
        overdue = await self.store.overdue()
        answers = await self.store.apply([self.change(late.job, *to, actor="sweeper") for late in overdue])
        return [answer.job for answer in answers if answer.outcome == "applied" and answer.job is not None]

    async def story(self, job: Job | str) -> list[str]:
        """The states a job went through."""
        return [event.to for event in await self.store.events(job if isinstance(job, str) else job.id)]

    async def dump(self) -> dict[str, Any]:
        """Everything there is to see."""
        store = self.store
        rows = await store.audit(limit=10_000)
        return {
            "rows": [found.job for found in rows],
            "events": [await store.events(found.job.id) for found in rows],
            "refusals": [await store.refusals(found.job.id) for found in rows],
            "awaited": [await store.awaited(found.job.id) for found in rows],
            "sessions": await store.sessions(),
            "queues": await store.queues(),
            "limits": await store.limits(),
            "schedules": await store.schedules(),
            "stats": await store.stats(),
        }

    def seen(self, found: Audited, **changed: Any) -> list[Finding]:
        """What a check finds about a row, as it is or with other values in it."""
        job = msgspec.structs.replace(found.job, **changed)
        return inspect(job, found.events, chain=self.store.chain, now_ms=self.clock.now_ms())

    async def assert_sound(self) -> None:
        """Every chain verifies, the last event agrees with the row, and the store's own check is clean."""
        for found in await self.store.audit(limit=10_000):
            assert self.store.chain.first_break(found.job, found.events) is None
            assert found.events[-1].to == found.job.status
            assert found.events[-1].seq == found.job.version
            assert [each for each in self.seen(found) if each.code in SEALED] == []
        assert await self.store.check() == []
