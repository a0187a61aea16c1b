"""The web suite believes the server rather than the generator, and says which bars were met."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench import web_load, web_pages, web_report
from bench.web import Report, Sizes
from bench.web_load import SUBMIT, LoadFailed, _Said
from bench.web_pages import LIST, Paged
from bench.web_server import ServeFailed, percentile, served
from bench.web_work import BULK, JOB, JOBS
from servers.programs import program

ROOT = Path(__file__).parents[2]


def test_a_submitted_job_has_a_payload_of_a_hundred_bytes() -> None:
    assert len(msgspec.json.encode(JOB["payload"])) == 100
    assert len(JOBS["jobs"]) == BULK == 100


@pytest.mark.parametrize(
    ("n", "at", "found"), [(100, 0.5, 50.0), (100, 0.99, 99.0), (100, 1.0, 100.0), (1, 0.99, 1.0), (200, 0.99, 198.0)]
)
def test_a_percentile_is_a_value_that_so_many_are_not_above(n: int, at: float, found: float) -> None:
    assert percentile([float(value) for value in range(n, 0, -1)], at) == found


# -- what is asked under load -----------------------------------------------------------------------


class _Counting:
    """Stands for a server that has answered so many, and used so much, whenever it is asked."""

    def __init__(self, *answered: int) -> None:
        self._answered = list(answered)
        self._used = [(1.0, 3.0), (1.5, 3.25)]

    def answered(self) -> int:
        return self._answered.pop(0)

    def used(self) -> tuple[float, float]:
        return self._used.pop(0)


def _asked(monkeypatch: pytest.MonkeyPatch, says: int, answered: int) -> web_load.Asked:
    monkeypatch.setattr(web_load, "_wrk", lambda *_: _Said(says, 0, 2.0, 1.0, 4.0))
    return web_load.asked(_Counting(7, 7 + answered), "postgresql", SUBMIT, "wrk", 10, 2, Path(), "")  # type: ignore[arg-type]


def test_a_generator_that_claims_more_than_the_server_answered_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LoadFailed, match="wrk says 1,100 requests, and the server 1,000"):
        _asked(monkeypatch, 1100, 1000)


def test_a_server_that_answered_nothing_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LoadFailed, match="wrk says 0 requests"):
        _asked(monkeypatch, 0, 0)


def test_processor_time_is_shared_out_over_what_the_server_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _asked(monkeypatch, 995, 1000)

    assert found.rate == pytest.approx(995 / 2)
    assert found.server_cpu_ms == pytest.approx(0.5)
    assert found.store_cpu_ms == pytest.approx(0.25)


def test_a_server_that_cannot_start_is_reported_with_what_it_said(tmp_path: Path) -> None:
    with (
        pytest.raises(ServeFailed, match=r"(?s)did not start:.*no adapter for .nonsense"),
        served("nonsense://here", tmp_path),
    ):
        pass


# -- what is told -----------------------------------------------------------------------------------


def _paged(path: str = LIST, page: int = 1, **ms: float) -> Paged:
    taken = {"first_ms": 50.0, "p50_ms": 10.0, "p99_ms": 20.0, **ms}
    return Paged(store="sqlite", jobs=1_000_000, path=path, page=page, kb=50.0, **taken)


def _report(*paged: Paged) -> Report:
    return Report(at="2026-01-01", machine={}, versions={}, sizes=Sizes(), paged=list(paged))


@pytest.mark.parametrize(("p99_ms", "told"), [(99.9, "met"), (100.0, "NOT MET")])
def test_a_first_page_is_to_be_there_within_a_tenth_of_a_second(p99_ms: float, told: str) -> None:
    (line, _) = web_report.bars(_report(_paged("/", p99_ms=p99_ms)))

    assert line[-1] == told


@pytest.mark.parametrize(("first_ms", "told"), [(99.9, "met"), (100.0, "NOT MET")])
def test_so_is_it_for_whoever_asks_a_new_server_first(first_ms: float, told: str) -> None:
    (_, line) = web_report.bars(_report(_paged("/", first_ms=first_ms)))

    assert line[-1] == told


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ({"jobs": [], "finished": True}, "0 jobs"),
        ({"jobs": [{"id": "a", "queue": "other"}], "finished": True}, "1 jobs, 1 of them others"),
        ({"jobs": [{"id": "a", "queue": "rare"}], "finished": False}, "1 jobs, 0 of them others"),
    ],
)
def test_a_list_that_is_not_the_right_one_counts_for_nothing(page: dict[str, Any], said: str) -> None:
    with pytest.raises(ServeFailed, match=said):
        web_pages._judge("queue=rare", page)


@pytest.mark.parametrize(("p50_ms", "told"), [(15.0, "met"), (15.1, "NOT MET")])
def test_a_far_page_is_to_cost_about_what_the_first_does(p50_ms: float, told: str) -> None:
    bars = web_report.bars(_report(_paged(), _paged(page=1000, p50_ms=p50_ms, p99_ms=500.0)))

    assert [line[-1] for line in bars] == ["met", "met", told]
    assert bars[-1][1] == f"p50 {p50_ms / 10:.2f}x"


def test_what_is_kept_can_be_read_again(tmp_path: Path) -> None:
    report = _report(_paged(), _paged(page=1000))

    web_report.save(report, tmp_path / "web.json")

    assert web_report.load(tmp_path / "web.json") == report


# -- a whole run ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quick_run_measures_all_of_it_on_both_stores(tmp_path: Path) -> None:
    for kind, name in (("postgresql", "initdb"), ("wrk", "wrk")):
        program(kind, name)  # installed, or said to be missing
    run = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--only", "web", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    kept = web_report.load(tmp_path / "web.json")
    assert not kept.trouble
    assert {(each.store, each.generator) for each in kept.asked} == {
        (store, generator) for store in ("sqlite", "postgresql") for generator in web_load.GENERATORS
    }
    assert all(each.failed == 0 and 0 < each.p50_ms <= each.p99_ms for each in kept.asked)
    assert all((each.store_cpu_s is None) == (each.store == "sqlite") for each in kept.asked)
    assert [each.missed for each in kept.streamed] == [0] * 6
    assert all(each.files_after <= each.files_before for each in kept.vanished)
    assert len(web_report.bars(kept)) == 2 * (11 + 11 + 3)
