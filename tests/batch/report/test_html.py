"""The report as a page: whole, small, safe, and readable without colours."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser

from mainstay.batch import OutputStatus, UnitCounts, grid
from mainstay.batch.advice import batch_advice
from mainstay.batch.report.html import batch_html
from mainstay.batch.report.model import OutputSummary, SetOutcome, Trouble, ValidationCounts
from tests.batch.report.reports import JOB, a_report, outcomes

_VOID = {"meta", "br"}


class Nested(HTMLParser):
    """Complains about a tag that is not closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.names |= {name for name, _ in attrs}
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_asks_for_nothing_else() -> None:
    made = [SetOutcome(params=one, intact=int(one["a"]), units=4) for one in grid(a=[0, 1, 2, 3, 4], b=["x", "y"])]
    lacking = OutputStatus(
        group=0, index=1, unit="a=1", output="r", path="v1/lab/r", state="corrupt", detail="too short"
    )
    looks = [ValidationCounts(at_ms=1_794_835_482_130, attempt=1, verdict="partial", present=20, missing=19, corrupt=1)]
    trouble = Trouble(type="ValueError", message="no", units=3, example="a=1-s0", id=JOB)
    page = batch_html(
        a_report(
            made,
            aggregations={"score": UnitCounts(made=2, succeeded=1, idle=3)},
            lacking=[lacking],
            troubles=[trouble],
            validations=looks,
            resumed_from=JOB,
        )
    )

    parser = Nested()
    parser.feed(page)
    assert parser.open == []
    assert not {"script", "link", "img", "src", "href", "onclick"} & parser.names
    assert not re.search(r"url\(|@import|https?:", page)
    for text in ("v1/lab/r", "too short", "ValueError: no", "score", "s3://lab/outputs", f"jobs resume {JOB}"):
        assert text in page


def test_a_cell_has_a_symbol_and_its_share_besides_the_colour() -> None:
    made = [SetOutcome(params=one, intact=one["a"], units=4) for one in grid(a=[0, 1, 2, 3, 4])]

    cells = re.findall(r"<td class=(\w)>(.+?)</td>", batch_html(a_report(made)))

    assert cells == [("n", "○ 0/4"), ("f", "◔ 1/4"), ("h", "◑ 2/4"), ("m", "◕ 3/4"), ("a", "● 4/4")]


def test_what_a_study_names_cannot_break_the_page() -> None:
    evil = "<script>alert(1)</script>"
    report = a_report(
        [SetOutcome(params={evil: value, "b": evil}, intact=0, units=1) for value in (1, 2)],
        study=evil,
        reason=evil,
        place=evil,
        troubles=[Trouble(type=evil, message=evil, units=1, example=evil, id=JOB)],
    )

    assert "<script" not in batch_html(report)


def test_a_thousand_sets_and_many_more_make_a_small_page() -> None:
    rng = random.Random(3)
    thousand = grid(beta=[place / 100 for place in range(40)], gamma=[place / 100 for place in range(25)])
    sampled = [{name: rng.random() for name in ("beta", "gamma", "delta")} for _ in range(20_000)]

    for sets in (thousand, sampled):
        page = batch_html(a_report(outcomes(sets, intact=7)))
        assert len(page.encode()) < 200_000
        assert page.count("<td class=m") >= min(len(sets), 1000)


def test_outputs_that_nobody_could_look_at_are_told_as_such() -> None:
    report = a_report([], outputs=OutputSummary(source="unknown", expected=5, why="connection refused"))

    page = batch_html(report)

    assert "The outputs could not be checked: connection refused." in page
    assert "could not be checked</small>" in page


def test_advice_fits_the_state() -> None:
    def verbs(status: str, lacking: int) -> list[str]:
        return [one.command.split()[2] for one in batch_advice(JOB, status, lacking=lacking)]

    assert verbs("partial", 3) == ["resume", "resume", "validate", "force"]
    assert verbs("failed", 3) == ["resume", "resume", "validate"]
    assert verbs("succeeded", 0) == []
    assert verbs("succeeded", 1) == ["resume"]
    assert verbs("running", 9) == ["status"]
    assert verbs("cancelled", 9) == []
