"""`jobs watch`: what is seen while jobs move."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from mainstay.cli import watch_view
from mainstay.cli.observation import JobObservation, JobsObservation, Pace, is_settled, observe_job, observe_jobs
from mainstay.control import Completion, Control, Failure
from mainstay.errors import InvalidInput, JobNotFound, WaitTimeout
from mainstay.model import PLACE_MS, Job, Progress, Session
from mainstay.stores import Query
from mainstay.testing import MemoryStore, a_job
from tests.cli.conftest import Shell
from tests.cli.terminal import Terminal

SOON = Pace(every_s=0.01)
#: so long that only a wake can be in time
LATE = Pace(every_s=60)


@pytest.fixture
def control() -> Control:
    return Control(MemoryStore(), rng=random.Random(1), actor="ann")


class Lines:
    """The command in a pipe; one JSON value a line, read as they come."""

    def __init__(self, shell: Shell, *words: str) -> None:
        env = {**os.environ, "MAINSTAY_STORE": shell.url}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mainstay", "jobs", "watch", *words], stdout=subprocess.PIPE, text=True, env=env
        )

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def until(self, **wanted: object) -> dict[str, Any]:
        while True:
            line = self.next()
            if all(line.get(name) == value for name, value in wanted.items()):
                return line

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def lines(shell: Shell) -> Iterator[Any]:
    begun: list[Lines] = []

    def begin(*words: str) -> Lines:
        begun.append(Lines(shell, *words))
        return begun[-1]

    yield begin
    for each in begun:
        each.close()


def settle(shell: Shell, queue: str, *, ok: bool) -> None:
    async def work(control: Control) -> None:
        session = await control.claims.open_session(worker="w-1")
        (job,) = await control.claims.claim([queue], session.id, 1)
        await control.claims.start([job])
        await control.claims.report([control.claims.progress(job, 3, 12, "rows")])
        if ok:
            await control.attempts.complete([Completion(job)])
        else:
            await control.attempts.fail([Failure(job, ValueError("no such column"))])

    shell.does(work)


# -- one job ---------------------------------------------------------------------------------------


async def test_its_end_is_seen_at_once(control: Control) -> None:
    made = await control.jobs.submit("a", queue="q")
    session = await control.claims.open_session(worker="w-1")
    (job,) = await control.claims.claim(["q"], session.id, 1)
    seen = observe_job(control.store, made.id, LATE, history=10)

    first = await anext(seen)
    await control.attempts.complete([Completion(job)])
    last = await anext(seen)

    assert ([event.to for event in first.new_events], is_settled(first.job)) == (["pending", "running"], False)
    assert ([event.to for event in last.new_events], is_settled(last.job)) == (["succeeded"], True)
    with pytest.raises(StopAsyncIteration):
        await anext(seen)


async def test_moves_and_progress_are_seen_at_the_next_look(control: Control) -> None:
    made = await control.jobs.submit("a", queue="q")
    seen = observe_job(control.store, made.id, SOON, history=0)
    assert (await anext(seen)).new_events == []
    session = await control.claims.open_session(worker="w-1")

    (job,) = await control.claims.claim(["q"], session.id, 1)
    moved = await anext(seen)
    await control.claims.report([control.claims.progress(job, 3, 12, "rows")])
    progressed = await anext(seen)
    quiet = await anext(seen)

    assert ([event.to for event in moved.new_events], moved.progressed) == (["running"], False)
    assert (progressed.new_events, progressed.progressed, progressed.job.progress) == (
        [],
        True,
        Progress(done=3, total=12, message="rows"),
    )
    assert (quiet.new_events, quiet.progressed) == ([], False)


async def test_a_job_that_is_deleted_meanwhile_is_an_error(control: Control) -> None:
    made = await control.jobs.submit("a")
    seen = observe_job(control.store, made.id, SOON, history=0)
    await anext(seen)

    await control.operations.delete(made.id, actor="bob", reason="by request")

    with pytest.raises(JobNotFound):
        await anext(seen)


async def test_the_watch_can_end_before_the_job(control: Control) -> None:
    made = await control.jobs.submit("a")
    seen = observe_job(control.store, made.id, Pace(every_s=0.01, for_s=0.02), history=0)

    with pytest.raises(WaitTimeout, match="is still pending after 20ms; it continues"):
        async for _ in seen:
            pass


def test_in_a_pipe_each_change_is_a_line_and_success_is_zero(shell: Shell, lines: Any) -> None:
    (job_id,) = shell.submit(queue="mail")
    watch = lines(job_id, "--every", "50ms")

    first = watch.next()
    settle(shell, "mail", ok=True)
    last = watch.until(status="succeeded")

    assert (first["type"], first["id"], first["status"], first["name"]) == ("job", job_id, "pending", "mail.send")
    assert (last["type"], last["source"], last["seq"]) == ("event", "running", 3)
    assert watch.process.wait() == 0


def test_a_job_that_settles_otherwise_is_one(shell: Shell, lines: Any) -> None:
    (job_id,) = shell.submit(queue="mail", retries=0)
    watch = lines(job_id, "--json")

    watch.next()
    settle(shell, "mail", ok=False)
    last = watch.until(status="quarantined")

    assert last["reason"] == "gave up after 1 failed attempt"
    assert watch.process.wait() == 1


def test_a_job_that_has_settled_is_told_as_it_is(shell: Shell) -> None:
    good, bad = shell.submit(queue="mail"), shell.submit(queue="sums", retries=0)
    settle(shell, "mail", ok=True)
    settle(shell, "sums", ok=False)

    (line,) = shell.lines("jobs", "watch", good[0])
    assert (line["status"], line["progress"]) == ("succeeded", {"done": 3.0, "total": 12.0, "message": "rows"})
    assert shell.run("jobs", "watch", good[0]).exit_code == 0
    assert shell.run("jobs", "watch", bad[0]).exit_code == 1


def test_out_of_time_is_two(shell: Shell) -> None:
    (job_id,) = shell.submit()

    done = shell.run("jobs", "watch", job_id, "--for", "50ms")

    assert done.exit_code == 2
    assert f"job {job_id} is still pending after 50ms" in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("01990000-0000-7000-8000-000000000000",), "there is no job 01990000"),
        (("01990000-0000-7000-8000-000000000000", "--queue", "mail"), "give an id or filters, not both"),
        (("--every", "1ms"), "'1ms' is too short"),
        (("--for", "5"), "for: '5' is not a duration"),
        (("--status", "pendign"), "did you mean 'pending'?"),
    ],
)
def test_what_cannot_be_watched_is_an_error(shell: Shell, words: tuple[str, ...], complaint: str) -> None:
    done = shell.run("jobs", "watch", *words)

    assert done.exit_code == 2
    assert complaint in done.stderr


def test_in_a_terminal_the_story_grows_until_the_end(shell: Shell) -> None:
    (job_id,) = shell.submit(queue="mail")

    with Terminal("jobs", "watch", job_id, "--every", "50ms", MAINSTAY_STORE=shell.url) as terminal:
        terminal.wait_for("mail.send pending")
        settle(shell, "mail", ok=True)
        code = terminal.end()

    assert code == 0
    assert "running → succeeded" in " ".join(terminal.shown.split())
    assert "3 of 12, 25% rows" in terminal.shown


def test_ctrl_c_ends_the_watch_and_not_the_job(shell: Shell) -> None:
    (job_id,) = shell.submit(queue="mail")

    with Terminal("jobs", "watch", job_id, MAINSTAY_STORE=shell.url) as terminal:
        terminal.wait_for("mail.send pending")
        terminal.process.send_signal(signal.SIGINT)
        code = terminal.end()

    assert code == 130
    assert "Traceback" not in terminal.shown
    assert shell.get(job_id).status == "pending"


# -- many ------------------------------------------------------------------------------------------


async def test_new_jobs_and_moves_are_changes_and_what_was_there_is_not(control: Control) -> None:
    old = await control.jobs.submit("a", queue="q")
    seen = observe_jobs(control.store, Query(), SOON, limit=10)
    first = await anext(seen)

    new = await control.jobs.submit("b", queue="q")
    came = await anext(seen)
    await control.operations.cancel(old.id, actor="bob")
    moved = await anext(seen)
    quiet = await anext(seen)

    assert (first.changed, first.counts) == ([], {"pending": 1})
    assert [(before, job.id) for before, job in came.changed] == [(None, new.id)]
    assert [(before, job.status) for before, job in moved.changed] == [("pending", "cancelled")]
    assert moved.counts == {"pending": 1, "cancelled": 1}
    assert (quiet.changed, quiet.counts_changed) == ([], False)


async def test_a_job_is_seen_to_leave_the_filter(control: Control) -> None:
    job = await control.jobs.submit("a", queue="q")
    await control.jobs.submit("a", queue="other")
    seen = observe_jobs(control.store, Query(status=("pending",), queue="q"), SOON, limit=10)
    first = await anext(seen)

    await control.operations.cancel(job.id, actor="bob")
    left = await anext(seen)
    gone = await anext(seen)

    assert first.counts == {"pending": 1}
    assert [(before, job.status) for before, job in left.changed] == [("pending", "cancelled")]
    assert (left.newest, gone.changed) == ([], [])


async def test_watching_many_ends_after_its_time(control: Control) -> None:
    assert [seen async for seen in observe_jobs(control.store, Query(), Pace(every_s=9, for_s=0.01), limit=1)]


def test_many_are_lines_in_a_pipe(shell: Shell, lines: Any) -> None:
    watch = lines("--queue", "mail", "--every", "50ms")

    first = watch.next()
    (job_id,) = shell.submit(queue="mail")
    came = watch.until(type="job", status="pending")
    settle(shell, "mail", ok=True)
    ended = watch.until(type="job", status="succeeded")
    counts = watch.until(type="counts")

    assert (first["type"], first["counts"]) == ("counts", {})
    assert (came["id"], came["was"]) == (job_id, None)
    assert ended["id"] == job_id
    assert counts["counts"] == {"succeeded": 1}
    watch.process.send_signal(signal.SIGINT)
    assert watch.process.wait() == 130


# -- pictures --------------------------------------------------------------------------------------

NOW = 1_700_000_000_000


def drawn(picture: Any, width: int = 80) -> str:
    console = Console(width=width, height=24, record=True, file=io.StringIO())
    console.print(picture)
    return console.export_text()


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (a_job("pending", queue="mail", due_ms=NOW - 65_000), "queue mail, has waited for 1m5s"),
        (a_job("scheduled", queue="mail", due_ms=NOW + 65_000, reason="retry 1 of 3"), "due in 1m5s, retry 1 of 3"),
        (a_job("pending", queue="@lead", due_ms=PLACE_MS), "queue @lead, waits for cores"),
        (a_job("running", session="s1", claimed_ms=NOW - 5_000), "queue default, held by w-1 for 5s"),
        (a_job("succeeded", settled_ms=NOW), "queue default"),
        (a_job("running", progress=Progress(done=3, total=12, message="rows"), progress_ms=NOW), "3 of 12, 25% rows"),
        (a_job("running", progress=Progress(done=3), progress_ms=NOW - 2_000), "3 (2s ago)"),
    ],
)
def test_the_picture_of_a_job_says_where_it_is(job: Job, said: str) -> None:
    sessions = [Session(id="s1", worker="w-1")]
    seen = JobObservation(now_ms=NOW, job=job, new_events=[], sessions=sessions, first=True, progressed=False)

    shown = drawn(watch_view.JobFrame(24).draw(seen))

    assert said in shown
    assert max(map(len, shown.splitlines())) <= 80


async def test_a_long_story_keeps_its_newest_events_and_counts_the_others(control: Control) -> None:
    made = await control.jobs.submit("a", queue="q")
    for n in range(1, 31):
        await control.operations.set_priority(made.id, n, actor="bob")
    frame = watch_view.JobFrame(24)
    seen = await anext(observe_job(control.store, made.id, LATE, history=frame.capacity))

    shown = drawn(frame.draw(seen))

    assert "15 earlier events" in shown
    assert "priority changed from 29 to 30" in shown
    assert len(shown.splitlines()) <= 24


def test_the_picture_of_many_holds_counts_and_the_newest_change_first() -> None:
    frame = watch_view.JobsFrame(24)
    jobs = [a_job("succeeded", id=f"job-{n}", changed_ms=NOW - n) for n in range(40)]
    seen = JobsObservation(
        now_ms=NOW,
        counts={"succeeded": 1234, "pending": 2},
        counts_changed=True,
        newest=jobs,
        changed=[("running", job) for job in jobs],
    )

    shown = drawn(frame.draw(seen, "mail")).splitlines()

    assert shown[0] == "queue mail: 2 pending, 1,234 succeeded"
    assert shown[2].split() == ["0s", "ago", "job-39", "demo.task", "running", "→", "succeeded"]
    assert len(shown) <= 24


def test_an_empty_store_is_a_picture_too() -> None:
    seen = JobsObservation(now_ms=NOW, counts={}, counts_changed=True, newest=[], changed=[])

    assert drawn(watch_view.JobsFrame(24).draw(seen, None)).startswith("no jobs yet")


def test_a_pace_is_a_duration() -> None:
    from mainstay.cli.watch import _every

    assert _every("2s") == 2.0
    with pytest.raises(InvalidInput):
        _every("10ms")
