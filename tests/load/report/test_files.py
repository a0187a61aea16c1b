"""Reports as files: whole or not at all, and refused before the run rather than after it."""

from __future__ import annotations

import csv
import io
import os
import stat
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from mainstay.errors import InvalidInput
from mainstay.load.cli.execution import code_of
from mainstay.load.report.files import FileOutput, Kind, write_report, write_whole
from mainstay.load.report.junit import junit_xml
from mainstay.load.report.tables import points_csv, steps_csv
from mainstay.load.stats.model import CheckSummary, ThresholdOutcome, Trust
from mainstay.load.stats.tally import from_json
from tests.load.report.runs import a_header, a_step, a_summary, a_tag, an_empty_summary, an_open_summary, latency


@pytest.mark.parametrize("kind", ["html", "json", "csv", "junit"])
async def test_an_output_writes_its_file_when_the_run_is_over(kind: Kind, tmp_path: Path) -> None:
    output = FileOutput(kind, tmp_path / "run.out")

    await output.start(a_header())
    assert list(tmp_path.iterdir()) == []
    await output.stop(a_summary())

    written = {one.name for one in tmp_path.iterdir()}
    assert written == ({"run.out", "run-points.out"} if kind == "csv" else {"run.out"})
    assert all(one.stat().st_size > 100 for one in tmp_path.iterdir())


async def test_a_folder_that_is_not_there_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"html: the folder '.*nowhere' does not exist; create it"):
        await FileOutput("html", tmp_path / "nowhere" / "run.html").start(a_header())


async def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"json: .* is a folder; name a file in it"):
        await FileOutput("json", tmp_path).start(a_header())


def test_an_unknown_kind_is_refused_with_a_hint() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'junit'"):
        write_report("juint", "x", a_summary())


def test_what_json_holds_is_the_summary_itself(tmp_path: Path) -> None:
    summary = an_open_summary()

    (path,) = write_report("json", tmp_path / "run.json", summary)

    assert from_json(path.read_bytes()) == summary


def test_a_file_is_seen_old_or_new_and_never_in_part(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    path.write_bytes(b"a" * 1_000_000)
    seen = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    for letter in b"bcdefgh":
        write_whole("html", path, bytes([letter]) * 1_000_000)
    done.set()
    reader.join()

    assert {len(one) for one in seen} == {1_000_000}
    assert [one.name for one in tmp_path.iterdir()] == ["run.html"]


def test_a_link_stays_a_link_and_a_file_can_be_read_by_those_who_may(tmp_path: Path) -> None:
    link = tmp_path / "latest.html"
    link.symlink_to(tmp_path / "run.html")
    mask = os.umask(0o022)
    try:
        write_whole("html", link, b"new")
    finally:
        os.umask(mask)

    assert link.is_symlink()
    assert stat.S_IMODE((tmp_path / "run.html").stat().st_mode) == 0o644


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_whole("html", Path("/dev/null"), b"gone")

    assert Path("/dev/null").is_char_device()


# spreadsheets -------------------------------------------------------------------------------------------


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_of_each_step_and_one_of_all() -> None:
    summary = an_open_summary()

    step, total = rows(steps_csv(summary))

    assert (step["workflow"], step["step"], step["requests"]) == ("Shop", "browse", "4000")
    assert float(step["p95_ms"]) == pytest.approx(summary.steps[0].service.p95 * 1000, rel=1e-5)
    assert summary.response is not None
    assert float(total["response_p99_ms"]) == pytest.approx(summary.response.p99 * 1000, rel=1e-5)
    assert (total["step"], total["skipped"], step["tls_mean_ms"]) == ("(all)", "4", "")


def test_what_raised_without_a_request_is_a_column_of_its_own() -> None:
    steps = [a_step("browse", [0.1] * 5, raised=3)]
    tags = [a_tag("area", "checkout", [0.1] * 5, raised=3)]

    found = rows(steps_csv(a_summary(steps=steps, by_tag=tags, raised=4)))

    assert [(one["step"], one["raised"]) for one in found] == [
        ("browse", "3"),
        ("{area:checkout}", "3"),
        ("(all)", "4"),
    ]


def test_the_times_of_successful_requests_are_columns_of_their_own() -> None:
    steps = [a_step("browse", [0.1] * 5), a_step("pay", [0.1] * 5, failed=4, ok=latency([0.3]))]

    found = rows(steps_csv(a_summary(steps=steps, failed=4, ok=latency([0.3]))))

    assert [(one["p95_ms"], one["ok_p95_ms"]) for one in found[:2]] == [("100.0", "100.0"), ("100.0", "300.0")]
    assert found[2]["ok_p95_ms"] == "300.0"


def test_points_are_rows_of_all_steps_and_of_each() -> None:
    summary = a_summary()

    found = rows(points_csv(summary))

    assert [one["step"] for one in found[:4]] == ["(all)", "login", "browse", "(all)"]
    assert len(found) == 3 * len(summary.points)
    assert float(found[0]["p50_ms"]) == pytest.approx((summary.points[0].p50 or 0) * 1000, rel=1e-5)
    assert found[1]["users"] == ""


def test_points_of_an_open_model_have_both_times() -> None:
    summary = an_open_summary()

    everything, step = rows(points_csv(summary))[:2]

    point = summary.points[0]
    assert point.response is not None
    assert float(everything["response_p95_ms"]) == pytest.approx(point.response.p95 * 1000, rel=1e-5)
    assert float(step["response_p99_ms"]) == pytest.approx((point.by_step["Shop.browse"][6] or 0) * 1000, rel=1e-5)
    assert float(step["response_p50_ms"]) > float(step["p50_ms"]) + 1999
    assert rows(points_csv(a_summary()))[1]["response_p50_ms"] == ""


def test_a_name_is_never_a_formula() -> None:
    summary = a_summary(steps=[a_step("=1+1", [0.1])])

    assert rows(steps_csv(summary))[0]["step"] == "'=1+1"


# build servers ------------------------------------------------------------------------------------------


def cases(text: str) -> dict[str, ET.Element]:
    return {f"{one.get('classname')}: {one.get('name')}": one for one in ET.fromstring(text).iter("testcase")}


def test_each_threshold_and_check_is_a_case_and_what_failed_says_its_value() -> None:
    found = cases(junit_xml(a_summary(thresholds=an_open_summary().thresholds)))

    broken = found["load.threshold: p95 of browse < 20ms"].find("failure")
    assert broken is not None
    assert broken.get("message") == "81 ms, at 12s"
    checked = found["load.check: Shop.has_items"]
    assert [part.tag for part in checked] == ["system-out"]
    assert checked.findtext("system-out") == "3 of 4,000 failed (0.075 %)\n3 × empty"


@pytest.mark.parametrize(("passed", "told"), [(True, "system-out"), (False, "error")])
def test_a_step_that_raised_is_an_error_in_a_run_that_did_not_pass(passed: bool, told: str) -> None:
    steps = [msgspec.structs.replace(one, raised=9, errors={"KeyError": 9}) for one in a_summary().steps[:1]]
    threshold = ThresholdOutcome(text="error rate < 1%", passed=passed)

    case = cases(junit_xml(a_summary(steps=steps, thresholds=[threshold])))["load.step: Shop.login"]

    assert [part.tag for part in case] == [told]
    assert case.findtext(told) == "raised 9 times, without a request\n9 × KeyError"


def test_a_good_run_has_no_failures() -> None:
    check = CheckSummary(workflow="Shop", step="has_items", passed=10, failed=0)

    suite = ET.fromstring(junit_xml(a_summary(checks=[check]))).find("testsuite")

    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "0",
        "errors": "0",
        "skipped": "0",
    }


def test_a_run_that_cannot_be_trusted_says_so_and_fails_its_case_only_if_that_is_asked_for() -> None:
    name = "load.trust: the numbers are those of the target"

    told = cases(junit_xml(an_open_summary()))[name]
    strict = cases(junit_xml(an_open_summary(), strict=True))[name]

    assert [part.tag for part in told] == ["system-out"]
    assert "97 % of its core" in (told.findtext("system-out") or "")
    assert [part.tag for part in strict] == ["failure"]
    assert "97 % of its core" in (strict.findtext("failure") or "")


def test_a_workflow_that_was_not_run_is_skipped_and_what_else_went_wrong_with_one_is_told() -> None:
    found = cases(junit_xml(an_open_summary()))

    assert found["load.workflow: Checkout"].find("skipped") is not None
    assert list(found["load.workflow: Shop"]) == []
    assert [part.tag for part in found["load.workflow: Shop teardown"]] == ["system-out"]


@pytest.mark.parametrize(
    ("name", "why"),
    [("Shop (failed)", "all 3 iterations had errors"), ("Shop", "its setup failed: ValueError: no shop")],
)
def test_a_workflow_that_failed_is_a_failed_case(name: str, why: str) -> None:
    found = cases(junit_xml(a_summary(ended=f"failed: Shop: {why}", verdict="failed", skipped={name: why})))

    failure = found["load.workflow: Shop"].find("failure")
    assert failure is not None
    assert failure.get("message") == why
    assert [one for one in found if one.startswith("load.workflow")] == ["load.workflow: Shop"]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("ok", [False, True])
@pytest.mark.parametrize("passed", [False, True])
@pytest.mark.parametrize("ended", ["finished", "failed: no shop", "interrupted", "cancelled: enough"])
def test_a_file_for_build_servers_is_red_if_and_only_if_the_command_exits_with_an_error(
    ended: str, passed: bool, ok: bool, strict: bool
) -> None:
    summary = a_summary(
        ended=ended,
        verdict="passed" if passed else "failed",
        thresholds=[ThresholdOutcome(text="p95 < 20ms", passed=passed)],
        trust=Trust(ok=ok, reasons=[] if ok else ["its core was full"]),
        skipped={"Checkout": "Shop failed", "Shop (failed)": "all 3 iterations had errors"},
        steps=[msgspec.structs.replace(one, raised=3) for one in a_summary().steps],
    )

    suite = ET.fromstring(junit_xml(summary, strict=strict)).find("testsuite")

    assert suite is not None
    red = (suite.get("failures"), suite.get("errors")) != ("0", "0")
    assert red == (code_of(summary, strict=strict) != 0)


def test_a_run_that_did_not_come_to_its_end_is_an_error() -> None:
    run = cases(junit_xml(an_empty_summary()))["load.run: the run came to its end"].find("error")

    assert run is not None
    assert run.get("message") == "failed: setup of Shop raised ValueError: no shop"


def test_what_xml_cannot_hold_is_replaced() -> None:
    found = cases(junit_xml(a_summary(skipped={"a\x00<b>": "\ud800 & so on"})))

    assert "load.workflow: a\ufffd<b>" in found


def test_the_table_of_steps_has_a_row_for_each_tag() -> None:
    summary = a_summary(by_tag=[a_tag("area", "checkout", [0.1] * 7)])

    *_, tag, total = rows(steps_csv(summary))

    assert (tag["workflow"], tag["step"], tag["requests"], tag["p50_ms"]) == ("(tag)", "{area:checkout}", "7", "100.0")
    assert total["workflow"] == "(all)"
