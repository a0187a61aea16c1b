"""What Tab offers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mainstay.control import Control
from mainstay.control.schedules import register, schedule
from mainstay.lifecycle import JOB
from tests.cli.conftest import Shell


def tab(shell: Shell, line: str, **environ: str) -> list[str]:
    """The words bash offers at the end of a line."""
    words = line.split(" ")
    done = shell.run(_MAINSTAY_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), **environ)
    return [word for word in done.stdout.split("\n") if word]


@pytest.fixture(autouse=True)
def _as_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["mainstay"])


def test_commands_are_offered(shell: Shell) -> None:
    assert {"jobs", "queues", "workers", "stats", "check", "machine"} <= set(tab(shell, "mainstay "))
    assert {"list", "show", "watch", "events", "explain", "cancel", "retry", "force", "delete"} <= set(
        tab(shell, "mainstay jobs ")
    )


def test_states_are_offered_also_after_a_comma(shell: Shell) -> None:
    assert tab(shell, "mainstay jobs list --status ") == list(JOB.states)
    assert tab(shell, "mainstay jobs list --status failed,qu") == ["failed,quarantined"]
    assert tab(shell, "mainstay jobs force --to canc") == ["cancelling", "cancelled"]


def test_queues_come_from_the_store(shell: Shell) -> None:
    shell.submit(queue="mail")
    shell.does(lambda control: control.operations.pause("mornings"))

    assert tab(shell, "mainstay jobs list --queue m") == ["mail", "mornings"]
    assert tab(shell, "mainstay queues pause mo") == ["mornings"]
    typed = f"mainstay jobs list --store {shell.url} --queue ma"
    assert tab(shell, typed, MAINSTAY_STORE="") == ["mail"]


def test_the_newest_ids_are_offered(shell: Shell) -> None:
    ids = shell.submit(n=2)

    assert tab(shell, "mainstay jobs show ") == [ids[1], ids[0]]
    assert tab(shell, f"mainstay jobs cancel {ids[0]}") == [ids[0]]


@pytest.mark.parametrize("environ", [{"MAINSTAY_STORE": ""}, {"MAINSTAY_STORE": "sqlite:///nowhere.db"}])
def test_without_a_store_nothing_is_offered_and_nothing_is_said(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert tab(shell, "mainstay jobs show ", **environ) == []
    assert not (tmp_path / "nowhere.db").exists()


def test_an_app_is_not_imported_for_a_tab(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tabbed.py").write_text("raise RuntimeError('imported')")

    assert tab(shell, "mainstay jobs show ", MAINSTAY_STORE="", MAINSTAY_APP="tabbed:app") == []


def test_tasks_and_schedules_come_from_the_store(shell: Shell) -> None:
    async def plan(control: Control) -> None:
        await register(control, [schedule("sums", "1h", "report.sums"), schedule("calls", "1h", "calls.make")])

    shell.submit("mail.send", n=2)
    shell.submit("report.build")
    shell.does(plan)

    assert tab(shell, "mainstay submit ") == ["mail.send", "report.build"]
    assert tab(shell, "mainstay schedules pause s") == ["sums"]
    shell.does(lambda control: control.operations.set_limit("tenant-7", 2))
    assert tab(shell, "mainstay limits clear t") == ["tenant-7"]
    assert tab(shell, "mainstay submit ", MAINSTAY_STORE="", MAINSTAY_APP="nowhere:app") == []
