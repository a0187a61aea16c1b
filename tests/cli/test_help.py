"""The help of every command, and the one place that says how they end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from mainstay.cli import app
from mainstay.cli.exits import EXIT_CODES

runner = CliRunner()
PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
#: commands that have no store of their own to name
STORELESS = {
    ("machine",),
    ("worker",),
    ("batch", "run"),
    ("batch", "exec"),
    # they work on a cluster, whose managers hold the store
    *(("cluster", name) for name in ("up", "status", "nodes", "leaders", "routes", "drain", "check", "kill", "bus")),
    *(("cluster", "bundle", name) for name in ("push", "list", "show", "remove", "prune")),
    *(("cluster", "certs", name) for name in ("init", "issue", "config", "retire")),
    ("manager",),
    ("node", "join"),
    ("jobs", "output"),
    *(("outputs", name) for name in ("list", "verify", "migrate")),
    *(("tokens", name) for name in ("add", "list", "revoke")),
    *(("load", name) for name in ("run", "watch", "new", "ping", "target", "report", "compare")),
}


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command there is."""
    if not hasattr(command, "commands"):
        yield words
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        yield from leaves(command.get_command(context, name), (*words, name))


COMMANDS = sorted(leaves(typer.main.get_command(app)))


def shown(words: tuple[str, ...], columns: int) -> str:
    done = runner.invoke(app, [*words, "--help"], env={"COLUMNS": str(columns)})
    assert done.exit_code == 0
    return done.stdout


def test_the_commands_of_the_plan_are_there() -> None:
    jobs = {"list", "show", "watch", "events", "explain", "cancel", "retry", "force", "delete"}
    wanted = {("jobs", name) for name in jobs} | {("queues", name) for name in ("list", "pause", "resume", "purge")}
    wanted |= {("schedules", name) for name in ("list", "show", "run", "pause", "resume", "drop")}
    wanted |= {("limits", name) for name in ("list", "set", "clear")}
    wanted |= {("workers", "list"), ("stats",), ("check",), ("machine",), ("submit",), ("worker",)}

    assert wanted <= set(COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_fits_the_terminal_and_says_how_it_ends(words: tuple[str, ...]) -> None:
    text = shown(words, 80)

    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "Examples" in text
    if words != ("machine",):
        assert "Exit codes: 0" in text


@pytest.mark.parametrize("words", sorted(set(COMMANDS) - STORELESS), ids=" ".join)
def test_every_command_on_a_store_takes_it_in_the_same_ways(words: tuple[str, ...]) -> None:
    text = shown(words, 100)

    assert all(option in text for option in ("--store", "MAINSTAY_STORE", "--app", "MAINSTAY_APP", "--json"))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_sentences_of_the_help_end_a_line_only_where_the_line_is_full(words: tuple[str, ...]) -> None:
    wide = shown(words, 300).split("╭")[0]
    prose = [line.strip() for line in wide.splitlines() if line.startswith(" ") and line[1:2] != " "]

    assert [line for line in prose if line and not line.endswith((".", ")", "Examples")) and "Usage" not in line] == []


def test_the_first_help_says_what_every_exit_code_means() -> None:
    text = " ".join(shown((), 80).split())

    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in text


def test_the_page_says_the_same_of_exit_codes_as_the_code() -> None:
    table = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, flags=re.MULTILINE)

    assert {int(code): meaning for code, meaning in table} == EXIT_CODES


def test_every_command_and_filter_is_on_the_page() -> None:
    for words in COMMANDS:
        if words[0] not in ("worker", "machine", "check"):
            assert f"{' '.join(words)}" in PAGE
    for option in (
        "--status",
        "--queue",
        "--name",
        "--task",
        "--tag",
        "--text",
        "--group",
        "--older-than",
        "--newer-than",
    ):
        assert option in PAGE
