"""The engine on the memory store, in virtual time: what becomes of each job, whatever the job does."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from mainstay.control import AttemptEnd, Control, JobRequest
from mainstay.errors import MainstayError, StaleClaim, StoreError
from mainstay.model import Job, Session
from mainstay.stores import JobStore, Query
from mainstay.testing import MemoryStore, VirtualClock
from mainstay.worker import Context, context
from mainstay.worker.engine import Engine, EngineProcess
from mainstay.worker.program import Mode
from mainstay.worker.recorder import Recorder
from mainstay.worker.solo_turn import SoloTurn
from tests.worker.program import Stage


class Shift:
    """A stage, a store, and an engine between them."""

    def __init__(self, store: JobStore, clock: VirtualClock) -> None:
        self.clock = clock
        self.stage = Stage()
        self.control = Control(store, rng=random.Random(1))
        self.client = Control(store, rng=random.Random(2))
        self.recorder = Recorder.create(64)
        self.solo_turn: SoloTurn | None = None
        self.retired: list[str] = []
        self.sessions: list[Session] = []
        self.engine: Engine

    async def begin(self, *, concurrency: int = 4, start: bool = True) -> Engine:
        session = await self._open_session()
        self.engine = Engine(
            self.stage,
            self.control,
            session,
            queues=["default"],
            concurrency=concurrency,
            process=EngineProcess(
                recorder=self.recorder,
                solo_turn=self.solo_turn,
                open_session=self._open_session,
                on_retire=self.retired.append,
            ),
            rng=random.Random(3),
        )
        if start:
            self.engine.start()
        return self.engine

    async def _open_session(self) -> Session:
        session = await self.control.claims.open_session(worker="w")
        self.sessions.append(session)
        return session

    def act(self, function: Callable[..., Any], mode: Mode = "loop") -> None:
        self.stage.act(function, mode)

    async def submit(self, name: str, **options: Any) -> str:
        return (await self.client.jobs.submit(name, {}, **options)).id

    async def settled(self, job_id: str) -> Job:
        return await self.client.jobs.wait(job_id, "60s")

    async def job(self, job_id: str) -> Job:
        """As it stands once everything the engine had is written down."""
        await self.engine.idle()
        return await self.client.jobs.get(job_id)

    async def path(self, job_id: str) -> list[str]:
        return [event.to for event in await self.client.jobs.events(job_id) if event.flag != "note"]

    async def end(self) -> None:
        if hasattr(self, "engine"):
            self.engine.drain(0)
            await self.engine.stopped.wait()
        self.recorder.close()


@pytest.fixture
async def shift() -> AsyncIterator[Shift]:
    clock = VirtualClock()
    shift = Shift(MemoryStore(clock), clock)
    yield shift
    await shift.end()


async def test_a_job_is_run_and_its_result_stored(shift: Shift) -> None:
    async def answer() -> int:
        return 42

    shift.act(answer)
    job_id = await shift.submit("answer")
    await shift.begin()

    job = await shift.settled(job_id)

    assert job.status == "succeeded"
    assert shift.stage.unpack(job.result or b"") == 42
    assert (job.starts, job.failures, job.session) == (1, 0, None)


async def test_a_plain_function_runs_in_a_thread_and_sees_its_context(shift: Shift) -> None:
    def where() -> list[str]:
        return [threading.current_thread().name, context().id]

    shift.act(where, "thread")
    job_id = await shift.submit("where")
    await shift.begin()

    thread, seen = shift.stage.unpack((await shift.settled(job_id)).result or b"")

    assert thread.startswith("mainstay-job")
    assert seen == job_id


async def test_an_error_is_kept_with_its_traceback_and_retried(shift: Shift) -> None:
    async def breaks() -> None:
        raise LookupError("no such address")

    shift.act(breaks)
    job_id = await shift.submit("breaks")
    await shift.begin()
    await asyncio.wait_for(_until(shift, job_id, "failed"), 60)

    job = await shift.job(job_id)

    assert job.status == "scheduled"
    assert job.failures == 1
    assert job.error is not None
    assert (job.error.type, job.error.message) == ("LookupError", "no such address")
    assert "in breaks" in (job.error.traceback or "")


async def test_sys_exit_in_a_job_fails_that_job_only(shift: Shift) -> None:
    async def leaves() -> None:
        raise SystemExit(3)

    async def stays() -> str:
        return "here"

    shift.act(leaves)
    shift.act(stays)
    leaving = await shift.submit("leaves", retries=0)
    staying = await shift.submit("stays")
    await shift.begin()

    assert (await shift.settled(leaving)).status == "quarantined"
    assert (await shift.settled(staying)).status == "succeeded"


async def test_a_job_that_asks_for_a_retry_is_tried_again_when_it_said(shift: Shift) -> None:
    async def later() -> None:
        context().retry(after="90s", reason="the other side is closed")

    shift.act(later)
    job_id = await shift.submit("later")
    await shift.begin()
    await asyncio.wait_for(_until(shift, job_id, "failed"), 60)

    job = await shift.job(job_id)

    assert (job.status, job.failures) == ("scheduled", 1)
    assert job.due_ms - shift.clock.now_ms() == 90_000
    assert job.error is not None
    assert job.error.message == "the other side is closed"


async def test_a_snooze_counts_no_failure(shift: Shift) -> None:
    async def naps() -> None:
        context().snooze("5m", reason="market closed")

    shift.act(naps)
    job_id = await shift.submit("naps")
    await shift.begin()
    await asyncio.wait_for(_until(shift, job_id, "scheduled"), 60)

    job = await shift.job(job_id)

    assert (job.status, job.reason, job.failures, job.releases) == ("scheduled", "market closed", 0, 1)


async def test_an_impossible_snooze_is_a_failure_that_says_so(shift: Shift) -> None:
    async def naps() -> None:
        context().snooze("0s")

    shift.act(naps)
    job_id = await shift.submit("naps", retries=0)
    await shift.begin()

    job = await shift.settled(job_id)

    assert job.status in ("failed", "quarantined")
    assert job.error is not None
    assert "snooze" in job.error.message


async def test_a_job_can_skip_itself(shift: Shift) -> None:
    async def looks() -> None:
        context().skip("already sent")

    shift.act(looks)
    job_id = await shift.submit("looks")
    await shift.begin()

    job = await shift.settled(job_id)

    assert (job.status, job.reason) == ("skipped", "already sent")


async def test_follow_ups_are_submitted_with_the_success_and_not_with_a_failure(shift: Shift) -> None:
    async def parent(good: bool) -> None:
        context().submit(JobRequest("child"))
        if not good:
            raise ValueError("after all")

    async def child() -> None: ...

    shift.act(parent)
    shift.act(child)
    bad = (await shift.client.jobs.submit("parent", {"good": False}, retries=0)).id
    await shift.begin()
    await shift.settled(bad)
    assert await _named(shift, "child") == []

    good = (await shift.client.jobs.submit("parent", {"good": True})).id
    await shift.settled(good)

    assert len(await _named(shift, "child")) == 1


async def test_an_unknown_task_is_parked_with_a_reason_and_never_dropped(shift: Shift) -> None:
    job_id = await shift.submit("unheard.of")
    await shift.begin()
    await asyncio.wait_for(_until(shift, job_id, "scheduled"), 60)

    job = await shift.job(job_id)

    assert job.status == "scheduled"
    assert "no task 'unheard.of'" in (job.reason or "")
    assert (job.starts, job.failures, job.releases) == (0, 0, 1)


async def test_an_unknown_task_is_parked_in_a_program_with_many_tasks(shift: Shift) -> None:
    async def known() -> None: ...

    for number in range(100):
        known.__name__ = f"a.long.name.of.a.known.task.{number}"
        shift.act(known)
    job_id = await shift.submit("unheard_of")
    await shift.begin()
    await asyncio.wait_for(_until(shift, job_id, "scheduled"), 60)

    job = await shift.job(job_id)

    assert "no task 'unheard_of'" in (job.reason or "")
    assert (job.starts, job.failures, job.releases) == (0, 0, 1)


async def test_arguments_that_no_longer_fit_go_to_quarantine_with_the_field_named(shift: Shift) -> None:
    async def send(to: str) -> None: ...

    shift.act(send)
    job_id = (await shift.client.jobs.submit("send", {"recipient": "a@b.c"})).id
    await shift.begin()

    job = await shift.settled(job_id)

    assert job.status == "quarantined"
    assert "recipient" in (job.reason or "") or "'to'" in (job.reason or "")
    assert job.error is not None
    assert job.error.code == "bad_arguments"


async def test_a_result_that_cannot_be_stored_fails_the_job_instead_of_losing_it(shift: Shift) -> None:
    async def strange() -> object:
        return object()

    shift.act(strange)
    job_id = await shift.submit("strange")
    await shift.begin()

    job = await shift.settled(job_id)

    assert job.status == "failed"
    assert job.error is not None
    assert "result" in job.error.message


async def test_a_follow_up_that_breaks_the_factory_fails_the_job_instead_of_losing_it(shift: Shift) -> None:
    async def parent() -> None:
        name: Any = ["a list"]
        context().submit(JobRequest(name))

    shift.act(parent)
    job_id = await shift.submit("parent")
    engine = await shift.begin()

    job = await shift.settled(job_id)

    assert job.status == "failed"
    assert job.error is not None
    assert "unhashable" in job.error.message
    await asyncio.wait_for(engine.idle(), 60)


async def test_a_run_that_overruns_is_cancelled_and_timed_out(shift: Shift) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise

    shift.act(waits)
    job_id = await shift.submit("waits", timeout="30s", retries=0)
    await shift.begin()
    await begun.wait()
    shift.clock.advance(29)
    assert not stopped.is_set()

    shift.clock.advance(2)
    await stopped.wait()
    job = await shift.settled(job_id)

    assert job.status == "quarantined"
    assert await shift.path(job_id) == ["pending", "running", "timed_out", "quarantined"]
    assert job.error is not None
    assert job.error.code == "timeout" or "run timeout" in job.error.message


async def test_a_thread_that_looks_is_stopped_at_its_timeout(shift: Shift) -> None:
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()

    def spins() -> None:
        loop.call_soon_threadsafe(begun.set)
        while True:
            context().check()

    shift.act(spins, "thread")
    job_id = await shift.submit("spins", timeout="30s", retries=0)
    await shift.begin()
    await begun.wait()

    shift.clock.advance(31)

    assert (await shift.settled(job_id)).status == "quarantined"
    assert not shift.retired


async def test_what_will_not_stop_is_left_behind_and_the_engine_retires(shift: Shift) -> None:
    loop = asyncio.get_running_loop()
    begun, release = asyncio.Event(), threading.Event()

    def deaf() -> str:
        loop.call_soon_threadsafe(begun.set)
        release.wait()
        return "too late"

    shift.act(deaf, "thread")
    job_id = await shift.submit("deaf", timeout="30s", grace="5s")
    engine = await shift.begin()
    await begun.wait()

    shift.clock.advance(31)
    await _tick(lambda: shift.recorder.running()[0].deadline_ms == shift.clock.now_ms() + 5_000)
    shift.clock.advance(6)
    await _tick(lambda: len(shift.retired) == 1)
    assert engine.left_behind == 1
    assert (await shift.client.jobs.get(job_id)).status == "running", (
        "as long as its ghost lives, nobody else may run it"
    )

    engine.drain(0)
    await engine.stopped.wait()
    release.set()

    job = await shift.client.jobs.get(job_id)
    assert await shift.path(job_id) == ["pending", "running", "timed_out", "scheduled"]
    assert (job.result, job.failures) == (None, 1)


async def test_a_slow_job_with_rising_progress_is_not_stalled_and_a_silent_one_is(shift: Shift) -> None:
    go, silent = asyncio.Queue[None](), asyncio.Event()

    async def climbs() -> None:
        for step in range(3):
            await go.get()
            context().progress(step + 1, 3)
            silent.set()
        await asyncio.Event().wait()

    shift.act(climbs)
    job_id = await shift.submit("climbs", stall_timeout="10s", timeout="off", retries=0)
    await shift.begin()
    for _ in range(3):
        silent.clear()
        go.put_nowait(None)
        await silent.wait()
        shift.clock.advance(9)
        await _turns(shift)
        assert (await shift.client.jobs.get(job_id)).status == "running"

    shift.clock.advance(2)
    job = await shift.settled(job_id)

    assert job.status == "quarantined"
    assert job.error is not None
    assert job.error.code == "stalled"
    assert job.progress is not None
    assert job.progress.done == 3


async def test_time_is_extended_by_progress(shift: Shift) -> None:
    granted, end = asyncio.Event(), asyncio.Event()

    async def long() -> float:
        context().progress(1)
        extension = await context().extend()
        granted.set()
        await end.wait()
        return extension.granted_s

    shift.act(long)
    job_id = await shift.submit("long", timeout="60s")
    await shift.begin()
    await granted.wait()
    shift.clock.advance(80)
    await _turns(shift)
    end.set()

    job = await shift.settled(job_id)

    assert job.status == "succeeded"
    assert shift.stage.unpack(job.result or b"") == 30.0


async def test_a_checkpoint_is_there_for_the_next_attempt(shift: Shift) -> None:
    async def climbs() -> Any:
        found = context().checkpoint
        if found is None:
            await context().save({"step": 7})
            raise ConnectionError("down")
        return found

    shift.act(climbs)
    job_id = await shift.submit("climbs", backoff_base="1s", jitter=False)
    await shift.begin()
    await asyncio.wait_for(_until(shift, job_id, "scheduled"), 60)
    shift.clock.advance(2)

    job = await shift.settled(job_id)

    assert shift.stage.unpack(job.result or b"") == {"step": 7}


async def test_a_running_job_is_cancelled_at_once(shift: Shift) -> None:
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    shift.act(waits)
    job_id = await shift.submit("waits")
    await shift.begin()
    await begun.wait()

    await shift.client.operations.cancel(job_id, actor="ann")
    job = await shift.settled(job_id)

    assert job.status == "cancelled"
    assert await shift.path(job_id) == ["pending", "running", "cancelling", "cancelled"]


async def test_a_job_that_wins_the_race_against_its_cancel_has_succeeded(shift: Shift) -> None:
    begun = asyncio.Event()

    async def finishes() -> str:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "done all the same"

    shift.act(finishes)
    job_id = await shift.submit("finishes")
    await shift.begin()
    await begun.wait()

    await shift.client.operations.cancel(job_id, actor="ann")

    assert (await shift.settled(job_id)).status == "succeeded"


async def test_a_job_held_but_not_begun_is_cancelled_without_running(shift: Shift) -> None:
    begun, end = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    async def quick() -> None:
        ran.append("quick")

    async def blocks() -> None:
        begun.set()
        await end.wait()

    shift.act(quick)
    shift.act(blocks)
    engine = await shift.begin(concurrency=1)
    for _ in range(3):  # teaches the engine to claim ahead
        await shift.settled(await shift.submit("quick"))
    ran.clear()
    await shift.submit("blocks")
    await begun.wait()
    waiting = await shift.submit("quick")
    await _tick(lambda: engine.held == 2)

    await shift.client.operations.cancel(waiting, actor="ann")
    job = await shift.settled(waiting)
    end.set()

    assert job.status == "cancelled"
    assert ran == []


async def test_a_lost_session_stops_its_jobs_writes_nothing_and_goes_on_under_a_new_one(shift: Shift) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def answer() -> int:
        return 42

    shift.act(waits)
    shift.act(answer)
    job_id = await shift.submit("waits")
    engine = await shift.begin()
    await begun.wait()
    lost = engine.session.id
    shift.clock.advance(9)
    await shift.client.sweeper.sweep()
    assert (await shift.client.jobs.get(job_id)).session is None

    await engine.pulsed(lost, known=False, cancelling=())
    await stopped.wait()
    after = await shift.settled(await shift.submit("answer"))

    assert engine.session.id != lost
    assert after.status == "succeeded"
    assert [refusal.token for refusal in await shift.control.store.refusals(job_id)] == []


async def test_what_was_claimed_under_a_session_that_is_lost_by_the_answer_is_not_begun(shift: Shift) -> None:
    ran: list[int] = []
    answered, go_on = asyncio.Event(), asyncio.Event()
    claim = shift.control.claims.claim

    async def slow_claim(queues: Sequence[str], session: str, n: int) -> list[Job]:
        jobs = await claim(queues, session, n)
        if jobs and not answered.is_set():
            answered.set()
            await go_on.wait()
        return jobs

    async def once() -> None:
        ran.append(context().job.token)

    shift.control.claims.claim = slow_claim  # type: ignore[method-assign]  # as if the store took long
    shift.act(once)
    job_id = await shift.submit("once")
    engine = await shift.begin()
    await answered.wait()
    shift.clock.advance(9)
    await shift.client.sweeper.sweep()

    await engine.pulsed(engine.session.id, known=False, cancelling=())
    go_on.set()
    shift.clock.advance(60)
    after = await shift.settled(job_id)

    assert after.status == "succeeded"
    assert ran == [2]


async def test_a_ghost_that_finishes_after_its_job_was_given_away_is_refused_and_recorded(shift: Shift) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await end.wait()
        return "ghost"

    shift.act(slow)
    job_id = await shift.submit("slow")
    engine = await shift.begin()
    await begun.wait()
    shift.clock.advance(9)
    await shift.client.sweeper.sweep()
    await engine._stop_claiming()  # it must not get the job again itself

    end.set()
    await engine.idle()

    job = await shift.client.jobs.get(job_id)
    assert job.status == "pending"
    assert [(r.token, r.wanted) for r in await shift.control.store.refusals(job_id)] == [(1, "succeeded")]


async def test_saving_a_checkpoint_after_the_claim_was_lost_is_refused(shift: Shift) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    refused: list[BaseException] = []

    async def saves() -> None:
        begun.set()
        await go.wait()
        try:
            await context().save(1)
        except StaleClaim as error:
            refused.append(error)

    shift.act(saves)
    job_id = await shift.submit("saves")
    engine = await shift.begin()
    await begun.wait()
    shift.clock.advance(9)
    await shift.client.sweeper.sweep()
    await engine._stop_claiming()

    go.set()
    await engine.idle()

    assert len(refused) == 1
    assert (await shift.client.jobs.get(job_id)).checkpoint is None


async def test_a_drain_gives_back_what_has_not_begun_and_waits_for_the_rest(shift: Shift) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def quick() -> None: ...

    async def blocks() -> None:
        begun.set()
        await end.wait()

    shift.act(quick)
    shift.act(blocks)
    engine = await shift.begin(concurrency=1)
    for _ in range(3):
        await shift.settled(await shift.submit("quick"))
    running = await shift.submit("blocks")
    await begun.wait()
    waiting = await shift.submit("quick")
    await _tick(lambda: engine.held == 2)

    engine.drain(60)
    await asyncio.wait_for(_until(shift, waiting, "pending", times=2), 60)
    assert not engine.stopped.is_set()
    end.set()
    await engine.stopped.wait()

    given_back = await shift.client.jobs.get(waiting)
    assert (given_back.status, given_back.releases, given_back.failures) == ("pending", 1, 0)
    assert (await shift.client.jobs.get(running)).status == "succeeded"


async def test_what_does_not_finish_within_the_grace_of_a_drain_is_given_back(shift: Shift) -> None:
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    shift.act(waits)
    job_id = await shift.submit("waits")
    engine = await shift.begin()
    await begun.wait()

    engine.drain(60)
    engine.drain(0)
    await engine.stopped.wait()

    job = await shift.client.jobs.get(job_id)
    assert (job.status, job.releases, job.failures, job.crashes) == ("pending", 1, 0, 0)


async def test_endings_are_kept_while_the_store_is_away_and_written_when_it_is_back(shift: Shift) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        await end.wait()
        return "kept"

    shift.act(slow)
    job_id = await shift.submit("slow")
    engine = await shift.begin()
    await begun.wait()
    tried = asyncio.Event()
    write = shift.control.attempts.write

    async def away(*_: object) -> Any:
        tried.set()
        raise StoreError("the store is away")

    shift.control.attempts.write = away  # type: ignore[method-assign]
    end.set()
    await tried.wait()
    assert (await shift.client.jobs.get(job_id)).status == "running"
    shift.control.attempts.write = write  # type: ignore[method-assign]

    job = await shift.settled(job_id)

    assert shift.stage.unpack(job.result or b"") == "kept"
    assert engine.held == 0


@pytest.mark.parametrize(("unstored", "most"), [(0, 3), (7, 7)])
async def test_no_more_jobs_have_begun_and_are_not_stored_than_the_concurrency(
    shift: Shift, unstored: int, most: int
) -> None:
    """What is not stored as ended runs again if the process is killed. A setting makes it more."""
    begun: list[str] = []
    written = asyncio.Event()

    async def quick() -> None:
        begun.append(context().id)

    shift.act(quick)
    shift.control.settings = shift.control.settings.changed(unstored=unstored)
    write = shift.control.attempts.write
    batches: list[int] = []

    async def slow(ends: Sequence[AttemptEnd]) -> Any:
        batches.append(sum(end.kind == "success" for end in ends))
        await written.wait()
        return await write(ends)

    shift.control.attempts.write = slow  # type: ignore[method-assign]
    ids = [await shift.submit("quick") for _ in range(40)]
    await shift.begin(concurrency=3)
    await asyncio.wait_for(_tick(lambda: len(begun) >= most), 60)
    for _ in range(50):
        await asyncio.sleep(0.001)

    assert len(begun) == most
    written.set()
    for job_id in ids:
        assert (await shift.settled(job_id)).status == "succeeded"
    assert len(begun) == 40
    assert max(batches) <= most


async def test_a_claimed_job_that_cannot_begin_goes_back_for_others(
    shift: Shift, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstay.worker.claimed.MOST_S", 0.05)
    begun, end = asyncio.Event(), asyncio.Event()

    async def quick() -> None: ...

    async def blocks() -> None:
        begun.set()
        await end.wait()

    shift.act(quick)
    shift.act(blocks)
    await shift.begin(concurrency=1)
    for _ in range(3):
        await shift.settled(await shift.submit("quick"))
    await shift.submit("blocks")
    await begun.wait()

    waiting = await shift.submit("quick")
    await asyncio.wait_for(_until(shift, waiting, "pending", times=2), 60)
    end.set()

    assert (await shift.client.jobs.get(waiting)).releases == 1


async def test_what_waited_because_the_loop_stood_still_is_not_given_back(
    shift: Shift, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstay.worker.claimed.MOST_S", 1.0)  # time for the others to begin, on a busy machine too

    async def quick() -> None: ...

    async def stalls() -> None:
        time.sleep(1.4)  # the loop stands still for longer than a job may wait

    shift.act(quick)
    shift.act(stalls)
    await shift.begin(concurrency=1)
    for _ in range(3):
        await shift.settled(await shift.submit("quick"))
    names = ["stalls", *["quick"] * 20]

    made = await shift.client.jobs.submit_many([JobRequest(name, {}) for name in names])

    jobs = [await shift.settled(one.id) for one in made]
    assert [job.releases for job in jobs] == [0] * len(jobs)


async def test_the_recorder_shows_what_runs_and_until_when(shift: Shift) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        begun.set()
        await end.wait()

    shift.act(waits)
    job_id = await shift.submit("waits", timeout="30s", grace="5s")
    await shift.begin()
    await begun.wait()

    [entry] = shift.recorder.running()
    end.set()
    await shift.settled(job_id)

    assert (entry.job_id, entry.token) == (job_id, 1)
    assert entry.deadline_ms == entry.started_ms + 35_000
    assert shift.recorder.running() == []


async def test_many_jobs_run_side_by_side_and_each_exactly_once(shift: Shift) -> None:
    ran: list[str] = []
    most = now = 0

    async def counts() -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        ran.append(context().id)
        now -= 1

    shift.act(counts)
    made = await shift.client.jobs.submit_many([JobRequest("counts", {}) for _ in range(1000)])
    await shift.begin(concurrency=7)
    for one in made:
        assert (await shift.settled(one.id)).status == "succeeded"

    assert sorted(ran) == sorted(one.id for one in made)
    assert most == 7


async def test_nothing_a_job_sets_in_its_context_is_seen_by_the_next(shift: Shift) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

    async def reads_and_sets() -> str:
        before = tenant.get()
        tenant.set("alice")
        return before

    shift.act(reads_and_sets)
    made = await shift.client.jobs.submit_many([JobRequest("reads_and_sets", {}) for _ in range(5)])
    await shift.begin(concurrency=1)

    seen = [shift.stage.unpack((await shift.settled(one.id)).result or b"") for one in made]

    assert seen == ["nobody"] * 5


async def test_an_error_on_the_way_out_of_a_drain_is_no_failure(shift: Shift) -> None:
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("the pool was closed under me") from None

    shift.act(waits)
    job_id = await shift.submit("waits", retries=0)
    engine = await shift.begin()
    await begun.wait()

    engine.drain(0)
    await engine.stopped.wait()

    job = await shift.client.jobs.get(job_id)
    assert (job.status, job.failures, job.releases) == ("pending", 0, 1)


async def test_an_error_after_a_timeout_does_not_hide_the_timeout(shift: Shift) -> None:
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("cut off") from None

    shift.act(waits)
    job_id = await shift.submit("waits", timeout="30s", retries=0)
    await shift.begin()
    await begun.wait()
    shift.clock.advance(31)

    await shift.settled(job_id)

    assert await shift.path(job_id) == ["pending", "running", "timed_out", "quarantined"]


async def test_what_a_job_says_after_its_end_is_not_put_on_its_successor(shift: Shift) -> None:
    stray: list[Context] = []
    begun, end = asyncio.Event(), asyncio.Event()

    async def leaves_a_ticker() -> None:
        stray.append(context())

    async def innocent() -> None:
        begun.set()
        await end.wait()

    shift.act(leaves_a_ticker)
    shift.act(innocent)
    first = await shift.submit("leaves_a_ticker", stall_timeout="1s", timeout="off")
    await shift.begin(concurrency=1)
    await shift.settled(first)
    second = await shift.submit("innocent", timeout="off")
    await begun.wait()

    stray[0].progress(1)
    [entry] = shift.recorder.running()
    end.set()
    await shift.settled(second)

    assert (entry.job_id, entry.deadline_ms) == (second, 0)


async def test_a_submit_after_the_end_of_its_job_is_refused(shift: Shift) -> None:
    stray: list[Context] = []

    async def ends() -> None:
        stray.append(context())

    shift.act(ends)
    job_id = await shift.submit("ends")
    await shift.begin()
    await shift.settled(job_id)

    with pytest.raises(MainstayError, match="has ended"):
        stray[0].submit(JobRequest("ends"))


@pytest.mark.parametrize("error", [GeneratorExit, KeyboardInterrupt, SystemExit, StopAsyncIteration])
async def test_whatever_leaves_a_task_is_an_ending(shift: Shift, error: type[BaseException]) -> None:
    async def raises() -> None:
        raise error

    shift.act(raises)
    job_id = await shift.submit("raises", retries=0)
    engine = await shift.begin()

    job = await shift.settled(job_id)

    assert (job.status, job.failures) == ("quarantined", 1)
    assert engine.held == 0


async def test_a_directive_inside_a_task_group_is_obeyed(shift: Shift) -> None:
    async def looks() -> None:
        async def part() -> None:
            context().skip("nothing to do")

        async with asyncio.TaskGroup() as group:
            group.create_task(part())

    shift.act(looks)
    job_id = await shift.submit("looks")
    await shift.begin()

    job = await shift.settled(job_id)

    assert (job.status, job.reason) == ("skipped", "nothing to do")


async def test_a_step_of_the_wall_clock_times_nothing_out(shift: Shift) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def waits() -> str:
        begun.set()
        await end.wait()
        return "undisturbed"

    shift.act(waits)
    job_id = await shift.submit("waits", timeout="1h")
    engine = await shift.begin()
    await begun.wait()

    shift.clock.set_wall(shift.clock.now_ms() + 7_200_000)
    engine._runs.tick()
    end.set()

    assert (await shift.settled(job_id)).status == "succeeded"


async def test_a_tick_that_fails_does_not_end_the_watch_over_limits(
    shift: Shift, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, failed = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    shift.act(endless)
    job_id = await shift.submit("endless", timeout="10s", retries=0)
    engine = await shift.begin()
    await begun.wait()
    tick = engine._runs.tick

    def breaks() -> None:
        monkeypatch.setattr(engine._runs, "tick", tick)
        failed.set()
        raise TypeError("unexpected")

    monkeypatch.setattr(engine._runs, "tick", breaks)
    await failed.wait()
    shift.clock.advance(11)

    assert (await shift.settled(job_id)).error is not None
    assert "could not be checked" in caplog.text


async def test_an_ending_that_cannot_be_written_fails_its_job_and_no_other(shift: Shift) -> None:
    write = shift.control.attempts.write

    async def breaks(ends: Sequence[AttemptEnd]) -> Any:
        if any(end.job.name == "odd" and end.kind == "success" for end in ends):
            raise TypeError("nobody has foreseen this")
        return await write(ends)

    async def odd() -> None: ...

    async def good() -> None: ...

    shift.control.attempts.write = breaks  # type: ignore[method-assign]
    shift.act(odd)
    shift.act(good)
    strange = await shift.submit("odd")
    others = [await shift.submit("good") for _ in range(5)]
    await shift.begin()

    assert {(await shift.settled(job_id)).status for job_id in others} == {"succeeded"}
    job = await shift.settled(strange)
    assert (job.status, job.error and job.error.message) == ("failed", "nobody has foreseen this")


async def test_reports_that_cannot_be_stored_cost_no_ending(shift: Shift) -> None:
    async def breaks(*_: object) -> Any:
        raise TypeError("nobody has foreseen this")

    async def tells() -> str:
        context().progress(1)
        return "done"

    shift.control.claims.report = breaks  # type: ignore[method-assign]
    shift.act(tells)
    job_id = await shift.submit("tells")
    await shift.begin()

    assert (await shift.settled(job_id)).status == "succeeded"


async def test_what_the_store_says_we_hold_and_we_know_nothing_of_goes_back(shift: Shift) -> None:
    async def quick() -> None: ...

    shift.act(quick)
    engine = await shift.begin(start=False)
    job_id = await shift.submit("quick")
    await shift.control.claims.claim(["default"], engine.session.id, 1)  # an answer that never reached the engine
    engine._ledger.start()

    await engine._session.audit_claims()
    assert (await shift.client.jobs.get(job_id)).status == "running", "it may be on its way: not at first sight"
    await engine._session.audit_claims()
    await engine.idle()

    job = await shift.client.jobs.get(job_id)
    assert (job.status, job.releases, job.failures) == ("pending", 1, 0)


async def test_the_log_tells_of_each_failed_attempt_and_of_the_last_with_its_traceback(
    shift: Shift, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks() -> None:
        raise LookupError("no such address")

    shift.act(breaks)
    job_id = await shift.submit("breaks", retries=1, backoff_base="1s", jitter=False)
    await shift.begin()
    await asyncio.wait_for(_until(shift, job_id, "scheduled"), 60)
    shift.clock.advance(2)
    await shift.settled(job_id)
    await shift.engine.idle()

    first, last = [record for record in caplog.records if record.name == "mainstay.job"]
    assert (first.levelname, first.getMessage()) == (
        "WARNING",
        "failed, retry 1 of 1 in 1s: LookupError: no such address",
    )
    assert last.levelname == "ERROR"
    assert last.getMessage() == "quarantined: LookupError: no such address"
    assert (last.exc_text or "").startswith("Traceback")
    assert {vars(record)["job_id"] for record in (first, last)} == {job_id}


async def test_a_jobs_own_log_lines_carry_its_id_and_the_fields_it_gives(
    shift: Shift, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="mainstay.job")

    async def tells() -> None:
        context().log.info("sent", to="ann", name="not the logger's")

    shift.act(tells)
    job_id = await shift.submit("tells")
    await shift.begin()
    await shift.settled(job_id)

    [record] = [record for record in caplog.records if record.getMessage() == "sent"]
    fields = vars(record)
    assert (fields["job_id"], fields["attempt"], fields["to"]) == (job_id, 1, "ann")
    assert (fields["name"], fields["name_"]) == ("mainstay.job", "not the logger's")


async def _named(shift: Shift, name: str) -> list[Job]:
    return (await shift.client.store.find(Query(name=name))).jobs


async def _until(shift: Shift, job_id: str, status: str, *, times: int = 1) -> None:
    """Wait until a job has come into a state so many times."""
    while (await shift.path(job_id)).count(status) < times:
        await asyncio.sleep(0.001)


async def _tick(condition: Callable[[], bool]) -> None:
    """Wait until the engine has done something that nothing announces."""

    async def turn() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(turn(), 60)


async def _turns(shift: Shift) -> None:
    """Let the engine's tick pass, twice."""
    ticks = shift.recorder.ticks
    await _tick(lambda: shift.recorder.ticks >= ticks + 2)
