from __future__ import annotations

import asyncio
import json
import os
import random
import re
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner, Result

from mainstay.cli import app
from mainstay.control import Completion, Control
from mainstay.model import Offer, private_queue
from mainstay.stores import open_store

runner = CliRunner()


def run(*words: str, columns: int = 100) -> Result:
    return runner.invoke(app, ["stats", *words], catch_exceptions=False, env={"COLUMNS": str(columns)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two done, one running, three waiting in another queue that is paused; one session alive."""
    path = tmp_path / "jobs.db"

    async def make() -> None:
        store = await open_store(f"sqlite:///{path}")
        control = Control(store, rng=random.Random(1))
        for n in range(3):
            await control.jobs.submit("mail.send", {"n": n}, queue="mail")
        for n in range(3):
            await control.jobs.submit("sums.add", {"n": n}, queue="night")
        await control.operations.pause("night", reason="not by day")
        await control.operations.set_limit("tenant-7", 2)
        session = await control.claims.open_session(worker="worker-1", host="here", pid=os.getpid())
        jobs = await control.claims.claim(["mail"], session.id, 3)
        await control.attempts.complete([Completion(job) for job in jobs[:2]])
        await store.close()

    asyncio.run(make())
    return path


def words_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_jobs_are_counted_by_queue_and_state(path: Path) -> None:
    done = run("--store", f"sqlite:///{path}")

    assert done.exit_code == 0
    lines = words_of(done.stdout)
    assert ["mail", "running", "1"] in lines
    assert ["succeeded", "2"] in lines
    assert any(line[:4] == ["night", "(paused)", "pending", "3"] and len(line) == 5 for line in lines)
    assert "queue night is paused: not by day" in done.stdout
    assert "at most 2 at a time of tenant-7" in done.stdout
    assert "1 session at work" in done.stdout
    assert f"worker-1  pid {os.getpid()} on here" in done.stdout


def test_the_age_of_the_oldest_stands_beside_what_can_be_claimed(path: Path) -> None:
    asyncio.run(_submit_later_and_now(path))

    lines = words_of(run("--store", f"sqlite:///{path}").stdout)

    assert ["mail", "scheduled", "1"] in lines
    assert any(line[:2] == ["pending", "1"] and len(line) == 3 for line in lines)


def test_a_session_that_fell_silent_is_not_at_work(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("UPDATE sessions SET beat_ms = beat_ms - 106000")
    db.close()

    shown = run("--store", f"sqlite:///{path}").stdout
    assert "no worker is alive" in shown
    assert re.search(r"worker-1 .*  silent for 1m4\ds, not swept yet", shown)

    data = json.loads(run("--store", f"sqlite:///{path}", "--json").stdout)
    assert (data["live_sessions"], data["sessions"][0]["at_work"]) == (0, False)


def test_a_session_found_dead_is_not_at_work(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("UPDATE sessions SET dead = 1")
    db.close()

    shown = run("--store", f"sqlite:///{path}").stdout

    assert "no worker is alive" in shown
    assert "found dead" in shown


def test_a_session_without_a_host_is_on_no_host(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("UPDATE sessions SET host = ''")
    db.close()

    assert f"worker-1  pid {os.getpid()}  heard of" in run("--store", f"sqlite:///{path}").stdout


def test_rates_say_over_which_time(path: Path) -> None:
    assert "moves into it per minute (last 5 min)" in run("--store", f"sqlite:///{path}").stdout


def test_json_holds_counts_ages_rates_sessions_and_limits(path: Path) -> None:
    data = json.loads(run("--store", f"sqlite:///{path}", "--json").stdout)

    assert data["queues"]["mail"]["counts"] == {"running": 1, "succeeded": 2}
    assert data["queues"]["mail"]["paused"] is False
    assert data["queues"]["night"]["paused"] is True
    assert data["queues"]["night"]["oldest_ready_ms"] <= data["at_ms"]
    assert 0 < data["rates"]["succeeded"] <= 12
    assert data["live_sessions"] == 1
    assert [session["worker"] for session in data["sessions"]] == ["worker-1"]
    assert data["limits"] == {"tenant-7": 2}
    assert data["findings"] == []


def test_a_state_of_a_newer_version_is_counted_and_found(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("UPDATE tallies SET status = 'hibernating' WHERE queue = 'night'")
    db.close()

    lines = words_of(run("--store", f"sqlite:///{path}").stdout)
    assert any(line[:2] == ["hibernating", "(unknown:"] and line[-2] == "3" for line in lines)


def test_what_the_store_found_when_it_opened_is_shown_and_not_logged(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("UPDATE jobs SET session = 'nobody' WHERE status = 'running'")
    db.close()

    done = run("--store", f"sqlite:///{path}")

    assert "finding: 1 jobs are held by unknown sessions" in done.stdout
    assert f"look closer with: mainstay check --store sqlite:///{path}\n" in done.stdout
    assert done.stderr == ""


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    asyncio.run(_touch(tmp_path / "empty.db"))

    done = run("--store", f"sqlite:///{tmp_path}/empty.db")

    assert (done.exit_code, done.stdout) == (0, "no jobs yet\nno worker is alive\n")


@pytest.mark.parametrize("columns", [40, 80])
def test_the_tables_fit_the_terminal(path: Path, columns: int) -> None:
    shown = run("--store", f"sqlite:///{path}", columns=columns).stdout

    assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns


def test_a_missing_file_is_an_error_and_not_a_new_database(tmp_path: Path) -> None:
    done = run("--store", f"sqlite:///{tmp_path}/nowhere.db")

    assert done.exit_code == 2
    assert "there is no database" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_json_too_when_asked() -> None:
    done = run("--json")

    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "invalid_input"
    assert "MAINSTAY_STORE" in error["message"]


async def _submit_later_and_now(path: Path) -> None:
    store = await open_store(f"sqlite:///{path}")
    control = Control(store, rng=random.Random(2))
    await control.jobs.submit("mail.send", queue="mail", delay="1h")
    await control.jobs.submit("mail.send", queue="mail")
    await store.close()


async def _touch(path: Path) -> None:
    await (await open_store(f"sqlite:///{path}")).close()


def test_the_queue_of_one_load_run_is_in_no_table_and_no_total(path: Path) -> None:
    async def submit() -> None:
        store = await open_store(f"sqlite:///{path}")
        await Control(store, rng=random.Random(2)).jobs.submit("Shop", queue=private_queue("3f9c"))
        await store.close()

    before = json.loads(run("--store", f"sqlite:///{path}", "--json").stdout)["queues"]
    asyncio.run(submit())

    assert json.loads(run("--store", f"sqlite:///{path}", "--json").stdout)["queues"] == before
    by_state = words_of(run("--store", f"sqlite:///{path}").stdout)
    assert any(line[:2] == ["pending", "3"] for line in by_state)


def test_what_no_live_worker_takes_is_said(path: Path) -> None:
    async def make() -> None:
        store = await open_store(f"sqlite:///{path}")
        control = Control(store, rng=random.Random(3))
        for session in await store.sessions():
            await store.close_session(session.id)
        await control.claims.open_session(worker="w-2", host="here", offer=Offer(queues=("mail",), tasks={"a": {}}))
        await store.close()

    asyncio.run(make())

    told = "no live worker listens on queue night: 3 jobs wait"
    assert told in run("--store", f"sqlite:///{path}").stdout
    data = json.loads(run("--store", f"sqlite:///{path}", "--json").stdout)
    assert data["unserved"] == [{"queue": "night", "task": None, "jobs": 3, "text": told}]
    assert [session["queues"] for session in data["sessions"] if session["worker"] == "w-2"] == [["mail"]]
