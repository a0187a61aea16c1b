"""Runs from what they left: whatever was reported in the end can be reported again."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from mainstay.errors import InvalidInput
from mainstay.load.report.compare import compare
from mainstay.load.report.files import write_report
from mainstay.load.report.page import load_html
from mainstay.load.report.recorded import read_result
from mainstay.load.stats.histogram import sketch_of
from mainstay.load.stats.model import Moment, Sketch, StepStats, Summary, Trust, Window
from mainstay.load.stats.tally import RunTally
from mainstay.load.stream import StreamOutput
from tests.load.report.runs import a_header, a_summary, drawn

HEADER = a_header(thresholds=["p95 of browse < 200ms"])


def sketch(values: list[float]) -> Sketch | None:
    return sketch_of(array("d", values))


def windows(*, slower: float = 1.0) -> list[Window]:
    """Three seconds of two steps; those of `browse` were due a while before they were sent."""
    made = []
    for number in range(30):
        login, browse = drawn(number, count=40), [one * slower for one in drawn(number + 99, count=40)]
        late = [one + 0.1 for one in browse]
        made.append(
            Window(
                bucket=17_948_353_921 + number,
                users=5,
                iterations=40,
                steps=[
                    StepStats(workflow="Shop", step="login", ok=sketch(login[:30]), failed=sketch(login[30:])),
                    StepStats(workflow="Shop", step="browse", ok=sketch(browse), response=sketch(late)),
                ],
            )
        )
    return made


async def recorded(path: Path, *, slower: float = 1.0) -> Summary:
    output = StreamOutput(path)
    tally = RunTally(HEADER)
    await output.start(HEADER)
    for window in windows(slower=slower):
        tally.add(window)
        output.add(Moment(window=window, elapsed_s=0.0, phase="running", trust=Trust()))
    summary = tally.summary(stream=str(path))
    await output.stop(summary)
    return summary


@pytest.mark.parametrize("name", ["run.ndjson", "run.ndjson.zst"])
async def test_a_stream_makes_the_same_page_as_the_run_did(name: str, tmp_path: Path) -> None:
    summary = await recorded(tmp_path / name)

    run = read_result(tmp_path / name)

    assert load_html(run.summary) == load_html(summary)
    assert run.note == ""


def test_a_json_summary_makes_the_same_page_as_the_run_did(tmp_path: Path) -> None:
    summary = a_summary()
    write_report("json", tmp_path / "run.json", summary)

    assert load_html(read_result(tmp_path / "run.json").summary) == load_html(summary)


async def test_a_stream_has_the_histograms_of_each_step(tmp_path: Path) -> None:
    await recorded(tmp_path / "run.ndjson")

    run = read_result(tmp_path / "run.ndjson")

    counts = {key: sum(n for _, _, n in buckets) for key, buckets in run.service.items()}
    assert counts == {"": 2400, "Shop.login": 1200, "Shop.browse": 1200}
    assert {key: sum(n for _, _, n in buckets) for key, buckets in run.response.items()} == {
        "": 1200,
        "Shop.browse": 1200,
    }


async def test_two_streams_are_compared_step_by_step(tmp_path: Path) -> None:
    await recorded(tmp_path / "a.ndjson")
    await recorded(tmp_path / "b.ndjson.zst", slower=1.5)

    found = compare(read_result(tmp_path / "a.ndjson"), read_result(tmp_path / "b.ndjson.zst"))

    judged = {step.name: {one.metric: one.judgement for one in step.changes} for step in found.steps}
    assert judged["Shop.login"]["p50"] == "same"
    assert judged["Shop.browse"]["p50"] == "worse"
    assert judged["Shop.browse"]["response p95"] == "worse"
    assert found.exit_code == 1


async def test_a_run_that_was_killed_is_told_as_far_as_it_got(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    await recorded(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + lines[3][:100])

    run = read_result(path)

    assert run.summary.requests == 1600
    assert "torn" in run.note
    assert run.summary.ended.startswith("lost: ")
    assert "lost: " in load_html(run.summary)


def test_what_is_neither_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")

    with pytest.raises(InvalidInput, match=r"notes\.txt' is neither a recorded stream nor a JSON summary"):
        read_result(tmp_path / "notes.txt")
    with pytest.raises(InvalidInput, match=r"gone' cannot be read: No such file"):
        read_result(tmp_path / "gone")
