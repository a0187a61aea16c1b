"""`workers list` and `workers drain`."""

from __future__ import annotations

import os
import re

import pytest

from mainstay.control import Control
from tests.cli.conftest import Shell


@pytest.fixture
def staffed(shell: Shell) -> Shell:
    """w-1 holds two jobs; w-2 is alive and idle; w-3 fell silent with a job; w-4 was found dead."""

    async def work(control: Control) -> None:
        for _ in range(3):
            await control.jobs.submit("mail.send", queue="mail")
        first = await control.claims.open_session(worker="w-1", host="box", pid=os.getpid())
        await control.claims.open_session(worker="w-2", host="box", pid=os.getpid())
        third = await control.claims.open_session(worker="w-3", host="far", pid=os.getpid())
        await control.claims.open_session(worker="w-4", host="far", pid=os.getpid())
        await control.claims.claim(["mail"], first.id, 2)
        await control.claims.claim(["mail"], third.id, 1)

    shell.does(work)
    shell.sql("UPDATE sessions SET beat_ms = beat_ms - 106000 WHERE worker = 'w-3'")
    shell.sql("UPDATE sessions SET dead = 1 WHERE worker = 'w-4'")
    return shell


def test_sessions_are_listed_the_living_first(staffed: Shell) -> None:
    sessions = staffed.json("workers", "list")["sessions"]

    assert [(each["worker"], each["at_work"], each["dead"], each["holds"]) for each in sessions] == [
        ("w-1", True, False, 2),
        ("w-2", True, False, 0),
        ("w-3", False, False, 1),
        ("w-4", False, True, 0),
    ]
    assert sessions[0]["pid"] == os.getpid()
    assert sessions[2]["silent_ms"] >= 106_000


def test_every_time_of_a_session_is_a_date_or_how_long(staffed: Shell) -> None:
    for session in (*staffed.json("workers", "list")["sessions"], *staffed.json("stats")["sessions"]):
        assert {name for name in session if name.endswith("_ms")} <= {
            *("started_ms", "silent_ms", "age_ms", "draining_ms")
        }


def test_each_session_is_a_line(staffed: Shell) -> None:
    shown = staffed.run("workers", "list").stdout

    assert re.search(rf"^w-1 +alive +box +{os.getpid()} +\d+s +\d+s ago +2$", shown, flags=re.MULTILINE)
    assert re.search(r"^w-3 +silent +far .* 1m4\ds ago +1$", shown, flags=re.MULTILINE)
    assert re.search(r"^w-4 +dead +far ", shown, flags=re.MULTILINE)
    assert "1 job is held by dead sessions" in shown


def test_a_node_is_listed_with_its_labels(shell: Shell) -> None:
    async def work(control: Control) -> None:
        await control.claims.open_session(worker="w-1", host="box", pid=os.getpid())
        await control.claims.open_session(
            worker="w-2", host="box", pid=os.getpid(), node="rack-7", labels={"zone": "a", "disk": "ssd"}
        )

    shell.does(work)

    listed = {each["worker"]: (each["node"], each["labels"]) for each in shell.json("workers", "list")["sessions"]}
    assert listed == {"w-1": ("", {}), "w-2": ("rack-7", {"zone": "a", "disk": "ssd"})}
    shown = shell.run("workers", "list", columns=130).stdout
    assert re.search(r"^w-2 +rack-7 zone=a disk=ssd +alive +box ", shown, flags=re.MULTILINE)


@pytest.mark.parametrize("columns", [60, 80, 130])
def test_the_table_fits_the_terminal(staffed: Shell, columns: int) -> None:
    shown = staffed.run("workers", "list", columns=columns).stdout

    assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns


def test_nobody_is_no_error(shell: Shell) -> None:
    done = shell.run("workers", "list")

    assert (done.exit_code, done.stdout) == (0, "no worker is alive: no session is open\n")


def test_a_worker_is_asked_to_drain_in_the_name_of_whoever_asks(staffed: Shell) -> None:
    done = staffed.run("workers", "drain", "w-1", "--actor", "ann")
    assert (done.exit_code, done.stdout) == (0, "w-1 on box (1 process) drains, requested by ann\n")

    again = staffed.json("workers", "drain", "w-1", "w-2", "--actor", "bob")["sessions"]

    assert [(each["worker"], each["draining_by"]) for each in again] == [("w-1", "ann"), ("w-2", "bob")]
    shown = staffed.run("workers", "list").stdout
    assert re.search(r"^w-1 +draining +box ", shown, flags=re.MULTILINE)
    assert re.search(r"^w-3 +silent ", shown, flags=re.MULTILINE)
    assert "w-2 on box (1 process) drains, requested by bob\n" in shown


def test_of_a_worker_that_is_silent_it_is_said_that_it_may_never_hear_of_it(staffed: Shell) -> None:
    done = staffed.run("workers", "drain", "w-2", "w-3", "--actor", "ann")

    assert done.exit_code == 0
    assert "w-3 on far (1 process) drains, requested by ann\n" not in done.stdout
    assert "w-3 on far (1 process) has been silent for 1m" in done.stderr
    assert "w-2" not in done.stderr


def test_the_processes_of_one_worker_are_told_as_one(shell: Shell) -> None:
    async def work(control: Control) -> None:
        for pid in (11, 12):
            await control.claims.open_session(worker="shop", host="box", pid=pid, supervisor=10)

    shell.does(work)
    first, _ = shell.json("workers", "list")["sessions"]

    done = shell.run("workers", "drain", first["id"], "--actor", "ann")

    assert done.stdout == "shop on box (2 processes) drains, requested by ann\n"


@pytest.mark.parametrize("missing", ["nobody", "w-4"])
def test_nobody_is_asked_to_drain_if_one_that_is_named_is_not_there(staffed: Shell, missing: str) -> None:
    done = staffed.run("workers", "drain", "w-1", missing)

    assert done.exit_code == 2
    assert f"no live worker or session is called '{missing}'" in done.stderr
    assert not any(each["draining_ms"] for each in staffed.json("workers", "list")["sessions"])
