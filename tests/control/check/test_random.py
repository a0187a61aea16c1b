"""Whatever control does, the store is clean; whatever somebody edits, a repair makes it clean again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import msgspec
from hypothesis import given, settings, strategies as st

from mainstay.control import Completion, Control, Failure
from mainstay.control.check import check, watching
from mainstay.errors import SessionLost
from mainstay.lifecycle import JOB
from mainstay.model import ErrorInfo, Job, Lane, Options, Progress, Session
from mainstay.testing import MemoryStore, VirtualClock

ERROR = ErrorInfo(type="ValueError", message="no luck")
OPERATIONS = ("cancel", "retry", "force", "note")
ENDS = ("done", "fail", "crash", "release", "snooze")
STEPS = ("submit", "delay", "claim", "start", "sweep", "beat", "wait", "trim", *ENDS, *OPERATIONS)
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), max_size=30)


class Life:
    """A store that is driven by control, one random step after the other."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.control = Control(self.store, rng=random.Random(seed))
        self.held: list[Job] = []

    async def open(self) -> None:
        await self.store.open_session(Session(id="s1"))

    async def sweep(self) -> None:
        """As a command would: it has missed no beat of its own, so it need not wait before it reaps."""
        await Control(self.store).sweeper.sweep()

    async def step(self, what: str, n: int) -> None:
        control = self.control
        job = self.held.pop(n % len(self.held)) if self.held and what in ENDS else None
        if what == "submit":
            await control.jobs.submit("work.do", {"n": n}, priority=n, concurrency_key="k" if n > 3 else None)
        elif what == "delay":
            await control.jobs.submit("work.do", {"n": n}, delay=f"{n}s")
        elif what == "claim":
            with contextlib.suppress(SessionLost):  # a sweep may have given it up
                self.held += await control.claims.claim(["default"], "s1", n + 1)
        elif what == "start" and self.held:
            await control.claims.start(self.held[:n])
        elif what == "sweep":
            await control.sweeper.sweep()
        elif what == "beat":
            await control.claims.beat(["s1"])
        elif what == "wait":
            self.clock.advance(n)
        elif what == "trim":
            self.clock.advance(86400 * n)
            await control.retain()
        elif job is not None:
            await self._end(what, job)
        elif what in OPERATIONS:
            await self._operate(what, n)

    async def _end(self, what: str, job: Job) -> None:
        control = self.control
        if what == "done":
            await control.attempts.complete([Completion(job, result=1)])
        elif what in ("fail", "crash"):
            await control.attempts.fail([Failure(job, ERROR, crashed=what == "crash")])
        elif what == "release":
            await control.attempts.release([job], reason="drain")
        else:
            await control.attempts.snooze(job, "5s")

    async def _operate(self, what: str, n: int) -> None:
        rows = [found.job for found in await self.store.audit()]
        if not rows:
            return
        job = rows[n % len(rows)]
        if what == "cancel":
            await self.control.operations.cancel_many([job.id], actor="ann")
        elif what == "retry":
            await self.control.operations.retry_many([job.id], actor="ann")
        elif what == "note" and not JOB.states[job.status].settled:
            await self.control.operations.set_priority(job.id, n * 10, actor="ann")
        elif what == "force" and not JOB.states[job.status].final:
            await self.control.operations.force(job.id, "quarantined", actor="ann", reason="a hunch")


async def lived(taken: list[tuple[str, int]]) -> Life:
    life = Life()
    await life.open()
    for what, n in taken:
        await life.step(what, n)
    return life


@settings(max_examples=150)
@given(steps)
def test_whatever_control_does_the_store_is_clean(taken: list[tuple[str, int]]) -> None:
    async def story() -> None:
        life = await lived(taken)
        await life.sweep()
        report = await check(life.store)
        assert report.violations == ()

    asyncio.run(story())


numbers = st.integers(-5, 5) | st.integers(-(2**62), 2**62)
times = st.none() | numbers | st.integers(0, 2_000_000_000_000)
names = st.none() | st.text(max_size=5)
EDITS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("priority", "version", "token", "starts", "failures", "crashes", "releases", "losses"), numbers),
    **dict.fromkeys(("created_ms", "changed_ms", "due_ms", "extra_ms", "trimmed_seq", "rank"), numbers),
    **dict.fromkeys(("claimed_ms", "started_ms", "settled_ms", "expires_ms", "progress_ms"), times),
    **dict.fromkeys(("session", "reason"), names),
    "status": st.sampled_from(sorted(JOB.states)) | st.text(max_size=5),
    "lane": st.sampled_from(list(Lane)) | numbers,
    "head": st.binary(max_size=32),
    "trimmed_digest": st.binary(max_size=32),
    "payload": st.binary(max_size=5),
    "parent": st.text(min_size=1, max_size=5),
    "concurrency_key": names,
    "options": st.builds(
        Options, run_timeout_s=st.none() | st.floats(), grace_s=st.floats(), keep_s=st.none() | st.floats()
    ),
    "progress": st.builds(Progress, done=st.floats()),
}
edits = st.lists(
    st.sampled_from(sorted(EDITS)).flatmap(lambda name: st.tuples(st.just(name), EDITS[name])), min_size=1, max_size=3
)


@settings(max_examples=400)
@given(steps, st.integers(0, 20), edits, st.booleans())
def test_whatever_is_edited_a_repair_makes_the_store_clean(
    taken: list[tuple[str, int]], which: int, edited: list[tuple[str, Any]], lose: bool
) -> None:
    async def story() -> None:
        life = await lived([("submit", 1), *taken])
        await life.sweep()
        rows = life.store._rows
        if not rows.ids:
            return
        job = rows.jobs[rows.ids[which % len(rows.ids)]]
        final = JOB.states[job.status].final
        bad = msgspec.structs.replace(job, **dict(edited))
        rows.write(bad, (), life.clock.now_ms())
        if lose and rows.events[job.id]:
            del rows.events[job.id][which % len(rows.events[job.id])]

        mended = await check(life.store, repair=True)
        assert mended.clean, mended.remaining
        again = await check(life.store)
        assert again.violations == ()
        [after] = await life.store.get([job.id])
        if final and bad.status == job.status and bad.parent is None:
            assert after is not None
            assert after.status == job.status

    asyncio.run(story())


async def test_the_leaders_duty_logs_what_it_finds(caplog: Any) -> None:
    life = await lived([("submit", 1)])
    [job_id] = life.store._rows.ids
    life.store._rows.jobs[job_id] = msgspec.structs.replace(life.store._rows.jobs[job_id], priority=1000)

    report = await watching(life.store)(None)

    assert not report.clean
    assert f"job_id={job_id} broken=submit_changed" in caplog.text


async def test_the_leaders_duty_looks_at_a_few_rows_a_time_and_comes_round(caplog: Any) -> None:
    life = await lived([("submit", 1)] * 450)
    ids = sorted(life.store._rows.ids)
    watch = watching(life.store, rows=200)

    looked_at = [(await watch(None)).checked for _ in range(4)]
    assert looked_at == [200, 200, len(ids) - 400, 200]

    life.store._rows.jobs[ids[-1]] = msgspec.structs.replace(life.store._rows.jobs[ids[-1]], priority=1000)
    assert [(await watch(None)).clean for _ in range(2)] == [True, False]
