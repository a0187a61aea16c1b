from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

import mainstay.cli.root
from mainstay.cli import app
from mainstay.errors import InvalidTransition, JobNotFound
from mainstay.lifecycle import JOB, UNIT
from mainstay.lifecycle.diagram import data, mermaid

runner = CliRunner()


def run(*words: str) -> str:
    done = runner.invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_machine_prints_the_table_of_jobs_with_its_legend() -> None:
    shown = run("machine")

    assert all(name in shown for name in JOB.states)
    assert "dispatched" not in shown
    assert "a session owns it" in shown


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_machine_fits_the_terminal_and_is_ruled_like_the_other_tables(columns: int) -> None:
    lines = runner.invoke(app, ["machine"], env={"COLUMNS": str(columns)}).stdout.splitlines()

    assert set(lines[1]) == {"─"}
    assert max(map(len, lines)) <= columns


def test_machine_prints_the_table_of_units_when_asked() -> None:
    assert "dispatched" in run("machine", "--table", "unit")


def test_machine_as_mermaid_is_the_diagram_alone() -> None:
    assert run("machine", "--format", "mermaid") == mermaid(JOB) + "\n"


def test_machine_as_json_is_the_table_as_data() -> None:
    assert json.loads(run("machine", "--format", "json", "--table", "unit")) == data(UNIT)
    assert json.loads(run("machine", "--json")) == data(JOB)


def test_the_version_is_the_installed_one() -> None:
    from importlib.metadata import version

    assert run("--version") == f"mainstay {version('mainstay')}\n"


def test_help_shows_examples() -> None:
    assert "mainstay machine --format mermaid" in run("machine", "--help")


@pytest.mark.parametrize("words", [[], ["stats"], ["check"], ["jobs"], ["jobs", "list"], ["jobs", "show"], ["machine"]])
def test_sentences_of_the_help_end_a_line_only_where_the_line_is_full(words: list[str]) -> None:
    wide = runner.invoke(app, [*words, "--help"], env={"COLUMNS": "300"}).stdout
    prose = [line.strip() for line in wide.split("╭")[0].splitlines() if line.startswith(" ") and line[1] != " "]

    assert prose
    assert all(line.endswith((".", ")", "Examples")) or line.startswith("Usage") for line in prose if line)


def test_an_unknown_table_is_refused_with_the_known_ones() -> None:
    done = runner.invoke(app, ["machine", "--table", "uni"])

    assert done.exit_code == 2
    assert "'job', 'unit'" in done.output


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (JobNotFound("j-1"), "error: there is no job j-1; it may have been deleted or trimmed\n"),
        (
            InvalidTransition("j-1", "failed", "running", allowed=["pending"], story=["1. [x] happened"]),
            "error: job j-1 cannot go from failed to running; failed may become pending\n  1. [x] happened\n",
        ),
    ],
    ids=["one line", "with a story"],
)
def test_our_errors_are_messages_on_stderr_with_exit_code_2(error: Exception, said: str) -> None:
    toy = typer.Typer(cls=mainstay.cli.root.CommandGroup)

    @toy.callback()
    def _root() -> None: ...

    @toy.command()
    def burn() -> None:
        raise error

    done = runner.invoke(toy, ["burn"])

    assert (done.exit_code, done.stdout, done.stderr) == (2, "", said)
