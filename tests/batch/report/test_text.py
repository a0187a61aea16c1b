"""The report in a terminal: it fits, whatever the study, and says without colours what it says with them."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from rich.console import Console

from mainstay.batch import OutputStatus, grid
from mainstay.batch.report.model import BatchReport, OutputSummary, SetOutcome, Trouble
from mainstay.batch.report.text import show_report
from mainstay.cli.target import Where
from tests.batch.report.reports import JOB, a_report, outcomes


def shown(report: BatchReport, width: int = 80, **where: Any) -> list[str]:
    out = io.StringIO()
    show_report(report, Console(file=out, width=width, highlight=False), again=Where(**where).again)
    return out.getvalue().splitlines()


def sampled(n: int) -> list[SetOutcome]:
    rng = random.Random(5)
    return outcomes([{"beta": rng.random(), "a_long_name": rng.random(), "n": rng.randrange(9)} for _ in range(n)])


@pytest.mark.parametrize("width", [40, 60, 80, 133])
@pytest.mark.parametrize(
    "made",
    [
        outcomes([{}]),
        outcomes(grid(a=[1]), intact=0),
        outcomes(grid(beta=[place / 100 for place in range(100)], gamma=[0.1, 0.2]), intact=3),
        outcomes(grid(name=["a fairly long name of a host", "b"], mode=["cold", "hot"], n=[1, 2, 3])),
        sampled(3000),
    ],
    ids=["nothing", "one", "many", "facets", "sampled"],
)
def test_every_line_but_commands_fits_the_terminal(made: list[SetOutcome], width: int) -> None:
    lacking = OutputStatus(
        group=0, index=1, unit="a=1" * 20, output="r", path="v1/r", state="corrupt", detail="short " * 9
    )
    trouble = Trouble(type="ValueError", message="it went wrong " * 9, units=3, example="a=1-s0", id=JOB)

    lines = shown(a_report(made, lacking=[lacking], troubles=[trouble]), width)

    # an id and a command are there to be copied
    assert [line for line in lines if len(line) > width and "mainstay" not in line and line != JOB] == []


def test_cells_tell_their_share_by_symbols() -> None:
    made = [SetOutcome(params=one, intact=one["a"], units=4) for one in grid(a=[0, 1, 2, 3, 4])]

    lines = shown(a_report(made))

    place = lines.index("parameter sets by outcome")
    assert [line.split() for line in lines[place + 1 : place + 4]] == [
        ["a"], ["0", "1", "2", "3", "4"], ["╳╳", "░░", "▒▒", "▓▓", "██"],
    ]  # fmt: skip


def test_what_is_stored_cannot_move_the_cursor() -> None:
    evil = "\x1b[2J"
    report = a_report(
        [SetOutcome(params={"a": evil, evil: n}, intact=0, units=1) for n in (1, 2)],
        reason=evil,
        troubles=[Trouble(type="E", message=evil, units=1, example=evil, id=JOB)],
    )

    assert not any("\x1b" in line for line in shown(report))


def test_commands_are_for_the_store_that_was_named() -> None:
    report = a_report(outcomes([{"a": 1}], intact=4))

    lines = shown(report, store="sqlite:///lab.db", typed=frozenset({"store"}))

    assert f"    mainstay jobs resume {JOB} --store sqlite:///lab.db" in lines


def test_a_look_at_names_and_sizes_and_no_look_at_all_are_told_apart() -> None:
    looked = OutputSummary(source="storage", expected=4, present=3, missing=1)
    away = OutputSummary(source="unknown", expected=4, why="connection refused")

    by_size = shown(a_report([], outputs=looked))
    unknown = shown(a_report([], outputs=away))

    assert "outputs  3 of 4 present, 1 missing (by name and size)" in by_size
    assert "outputs  4 expected; they could not be checked: connection refused" in unknown
    assert "parameter sets by outcome" not in unknown
