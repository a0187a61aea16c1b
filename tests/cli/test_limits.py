"""`limits list`, `set` and `clear`."""

from __future__ import annotations

import os

import pytest

from mainstay.control import Control
from tests.cli.conftest import Shell


@pytest.fixture
def limited(shell: Shell) -> Shell:
    """Key a is full, key b has room, and one job of key c runs without a limit."""

    async def work(control: Control) -> None:
        for key in ("a", "a", "b", "c"):
            await control.jobs.submit("mail.send", queue="mail", concurrency_key=key)
        await control.operations.set_limit("a", 1)
        await control.operations.set_limit("b", 5)
        session = await control.claims.open_session(worker="w-1", pid=os.getpid())
        assert len(await control.claims.claim(["mail"], session.id, 4)) == 3

    shell.does(work)
    return shell


def limits(shell: Shell) -> dict[str, int]:
    return shell.does(lambda control: control.store.limits())


def test_limits_are_listed_with_how_many_are_held(limited: Shell) -> None:
    assert limited.json("limits", "list") == {
        "limits": [
            {"key": "a", "limit": 1, "held": 1, "counted": True},
            {"key": "b", "limit": 5, "held": 1, "counted": True},
        ]
    }
    lines = [line.split() for line in limited.run("limits", "list").stdout.splitlines()]
    assert lines[0] == ["key", "limit", "held", "now"]
    assert lines[2:] == [["a", "1", "1"], ["b", "5", "1"]]


def test_no_limits_is_no_error(shell: Shell) -> None:
    done = shell.run("limits", "list")

    assert done.exit_code == 0
    assert done.stdout.startswith("no limits: ")
    assert shell.json("limits", "list") == {"limits": []}


def test_a_limit_holds_from_when_it_is_set_until_it_is_lifted(limited: Shell) -> None:
    async def claim(control: Control) -> int:
        session = await control.claims.open_session(worker="w-2", pid=os.getpid())
        return len(await control.claims.claim(["mail"], session.id, 4))

    assert limited.does(claim) == 0
    done = limited.run("limits", "set", "a", "2")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "key a: at most 2 jobs at a time\n", "")
    assert limited.does(claim) == 1
    done = limited.run("limits", "clear", "a")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "key a: no limit\n", "")
    assert limits(limited) == {"b": 5}


def test_programs_are_told_what_holds_now(shell: Shell) -> None:
    assert shell.json("limits", "set", "tenant-7", "3") == {"key": "tenant-7", "limit": 3}
    assert shell.json("limits", "clear", "tenant-7") == {"key": "tenant-7", "limit": None}


def test_to_lift_a_limit_that_is_not_there_is_done_and_remarked_on(limited: Shell) -> None:
    done = limited.run("limits", "clear", "aa")

    assert (done.exit_code, done.stdout) == (0, "key aa: no limit\n")
    assert done.stderr == "key aa had no limit; is the name right? Keys with a limit: a, b\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("a", "0"), "limit: 0 is not a whole number from 1 to "),
        (("", "1"), "concurrency_key: "),
        (("a", "many"), "'many' is not a valid int"),
    ],
)
def test_what_cannot_be_a_limit_is_refused(limited: Shell, words: tuple[str, ...], complaint: str) -> None:
    done = limited.run("limits", "set", *words)

    assert done.exit_code == 2
    assert complaint in done.stderr
    assert limits(limited) == {"a": 1, "b": 5}
