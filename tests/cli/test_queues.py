"""`queues list`, `pause`, `resume` and `purge`."""

from __future__ import annotations

import os
import re

import pytest

from mainstay.cli.options import local_actor
from mainstay.control import Completion, Control, Operations
from tests.cli.conftest import Shell


@pytest.fixture
def busy(shell: Shell) -> Shell:
    """Queue mail: one done, one running, two waiting, one later. Queue night: paused, with one job."""

    async def work(control: Control) -> None:
        for _ in range(4):
            await control.jobs.submit("mail.send", queue="mail")
        await control.jobs.submit("mail.send", queue="mail", delay="1h")
        await control.jobs.submit("sums.add", queue="night")
        await control.operations.pause("night", reason="not by day")
        session = await control.claims.open_session(worker="w-1", pid=os.getpid())
        first, _ = await control.claims.claim(["mail"], session.id, 2)
        await control.attempts.complete([Completion(first)])

    shell.does(work)
    return shell


def test_queues_are_listed_with_depth_age_and_pause(busy: Shell) -> None:
    data = busy.json("queues", "list")

    mail, night = data["queues"]
    assert (mail["name"], mail["paused"], mail["sessions_at_work"]) == ("mail", False, 1)
    assert mail["counts"] == {"pending": 2, "running": 1, "scheduled": 1, "succeeded": 1}
    assert mail["oldest_ready_ms"] <= data["at_ms"]
    assert (night["paused"], night["reason"], night["sessions_at_work"]) == (True, "not by day", 0)
    assert data["live_sessions"] == 1
    assert 0 < data["rates"]["succeeded"] <= 6


@pytest.mark.parametrize(
    ("columns", "cells"), [(140, ["1", "2", "1", "1"]), (80, ["1", "scheduled,", "2", "pending,"])]
)
def test_each_queue_is_a_line(busy: Shell, columns: int, cells: list[str]) -> None:
    shown = busy.run("queues", "list", columns=columns).stdout

    lines = [line.split() for line in shown.splitlines()]
    assert any(line[: 1 + len(cells)] == ["mail", *cells] for line in lines), shown
    assert any(line[:2] == ["night", "(paused)"] for line in lines)
    assert "queue night is paused: not by day" in shown
    assert "1 session is alive" in shown
    assert re.search(r"\d\.\d succeeded", " ".join(shown.split()))


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_the_table_fits_the_terminal(busy: Shell, columns: int) -> None:
    shown = busy.run("queues", "list", columns=columns).stdout

    assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns


def test_no_queues_is_no_error(shell: Shell) -> None:
    done = shell.run("queues", "list")

    assert (done.exit_code, done.stdout) == (0, "no queues yet\n")


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(busy: Shell) -> None:
    async def claim(control: Control) -> int:
        session = await control.claims.open_session(worker="w-2")
        return len(await control.claims.claim(["mail"], session.id, 1))

    assert busy.run("queues", "pause", "mail", "--reason", "storm").stdout == "queue mail is paused: storm\n"
    mail = busy.json("queues", "list")["queues"][0]
    assert (mail["set_by"], mail["set_ms"] is not None) == (local_actor(), True)
    assert re.search(rf"queue mail is paused: storm \({local_actor()}, \S+ ago\)", busy.run("queues", "list").stdout)
    assert busy.does(claim) == 0
    assert busy.run("queues", "resume", "mail").stdout == "queue mail is not paused\n"
    assert busy.does(claim) == 1


def test_pausing_a_queue_that_has_no_jobs_yet_is_done_and_remarked_on(busy: Shell) -> None:
    done = busy.run("queues", "pause", "mial")

    assert (done.exit_code, done.stdout) == (0, "queue mial is paused\n")
    assert done.stderr == "no job is in queue mial yet; is the name right? Known queues: mail, night\n"
    assert busy.run("queues", "pause", "mial", "mail").stderr == ""


def test_several_queues_are_paused_at_once(busy: Shell) -> None:
    data = busy.json("queues", "pause", "mail", "not-there-yet")

    assert [(queue["name"], queue["paused"], queue["reason"], queue["set_by"]) for queue in data["queues"]] == [
        ("mail", True, None, local_actor()),
        ("not-there-yet", True, None, local_actor()),
    ]


@pytest.mark.parametrize("words", [("resume", "mial"), ("purge", "mial", "--yes")])
def test_a_queue_nobody_has_heard_of_is_refused_with_those_there_are(busy: Shell, words: tuple[str, ...]) -> None:
    done = busy.run("queues", *words)

    assert done.exit_code == 2
    assert "unknown queue 'mial'; known queues: mail, night" in done.stderr


def test_purge_asks_first(busy: Shell) -> None:
    done = busy.run("queues", "purge", "mail")

    assert done.exit_code == 2
    assert done.stdout.startswith("cancel 3 jobs: 2 pending, 1 scheduled\n")
    assert "no terminal to ask on" in done.stderr
    assert busy.json("queues", "list")["queues"][0]["counts"]["pending"] == 2


def test_purge_cancels_what_waits_and_nothing_else(busy: Shell) -> None:
    done = busy.run("queues", "purge", "mail", "--yes")

    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "3 cancelled")
    mail, night = busy.json("queues", "list")["queues"]
    assert mail["counts"] == {"cancelled": 3, "running": 1, "succeeded": 1}
    assert night["counts"] == {"pending": 1}
    purged = busy.json("jobs", "list", "--status", "cancelled")["jobs"]
    assert {job["reason"] for job in purged} == {"queue mail was purged"}


def test_purge_can_delete_instead(busy: Shell) -> None:
    data = busy.json("queues", "purge", "mail", "--delete", "--yes")

    assert (data["action"], data["counts"]) == ("delete", {"deleted": 3})
    assert busy.json("queues", "list")["queues"][0]["counts"] == {"running": 1, "succeeded": 1}


def test_purge_leaves_alone_what_is_taken_meanwhile(busy: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    withdraw_many = Operations.withdraw_many

    async def too_late(self: Operations, ids: list[str], **who: str) -> object:
        claims = Control(self._store).claims
        session = await claims.open_session(worker="w-3")
        await claims.claim(["mail"], session.id, 1)
        return await withdraw_many(self, ids, **who)

    monkeypatch.setattr(Operations, "withdraw_many", too_late)

    done = busy.json("queues", "purge", "mail", "--yes", code=1)

    assert done["counts"] == {"applied": 2, "invalid": 1}
    assert busy.json("queues", "list")["queues"][0]["counts"] == {"cancelled": 2, "running": 2, "succeeded": 1}


def test_a_dry_run_of_a_purge_does_nothing(busy: Shell) -> None:
    data = busy.json("queues", "purge", "mail", "--dry-run")

    assert (data["dry_run"], data["total"]) == (True, 3)
    assert busy.json("queues", "list")["queues"][0]["counts"]["pending"] == 2
