"""The load suite believes the target rather than the generator, and says who is ahead."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import servers
from bench import load_report, load_runs
from bench.environments import REQUIREMENTS
from bench.load import Case, Found, Report, Sizes
from bench.load_limits import Crowd
from bench.load_memory import Memory
from bench.load_runs import Job, Ran, RunFailed
from bench.peers.load.catalog import LOAD_OURS, LOAD_PEERS, SCENARIOS, US, LoadSystem
from bench.peers.load.work import KILOBYTE
from servers import Nginx
from servers.programs import program

ROOT = Path(__file__).parents[2]

# -- one run of a generator -----------------------------------------------------------------------

GENERATOR = """
import http.client, json, os, sys, time
from urllib.parse import urlsplit

until = time.monotonic() + float(os.environ["BENCH_SECONDS"])
made = 0
client = http.client.HTTPConnection(urlsplit(os.environ["BENCH_BASE"]).netloc)
while time.monotonic() < until:
    client.request("GET", "/small.txt")
    client.getresponse().read()
    made += 1
CHANGE
json.dump({"requests": made, "failed": 0}, open(os.environ["BENCH_OUT"], "w"))
"""


@pytest.fixture
def target() -> Iterator[Nginx]:
    with servers.folder("mainstay-bench-") as place:
        server = Nginx(place)
        yield server
        server.stop()


def _ran(tmp_path: Path, target: Nginx, change: str = "") -> Ran:
    script = tmp_path / "generator.py"
    script.write_text(GENERATOR.replace("CHANGE", change))
    system = LoadSystem(
        name="x", title="X", setting="", command=(sys.executable, str(script)), counted=LOAD_OURS[0].counted
    )
    job = Job(scenario="get", connections=1, seconds=0.5)
    return load_runs.run(system, {}, target, tmp_path / "own", job)


def test_a_run_has_what_the_generator_and_what_the_target_counted(tmp_path: Path, target: Nginx) -> None:
    ran = _ran(tmp_path, target)

    assert ran.requests == ran.served > 0
    assert 0 < ran.warm_served < ran.served
    assert 0 < ran.warm_generator_s == ran.warm_all_s < ran.cpu_s
    assert ran.connections == 1
    assert ran.took_s > ran.start_s > 0


def test_a_generator_that_claims_more_than_the_target_saw_is_found_out(tmp_path: Path, target: Nginx) -> None:
    with pytest.raises(RunFailed, match=r"X says [\d,]+ requests, and its target [\d,]+"):
        _ran(tmp_path, target, "made = made * 2 + 10")


def test_a_generator_that_fails_is_reported_with_what_it_said_last(tmp_path: Path, target: Nginx) -> None:
    with pytest.raises(RunFailed, match=r"X ended with 1, and [\d,]+ requests were answered:\nno more files"):
        _ran(tmp_path, target, "sys.exit('no more files')")


# -- the generators -------------------------------------------------------------------------------


@pytest.mark.parametrize("system", [each for each in LOAD_PEERS if each.package], ids=lambda system: system.name)
def test_what_a_peer_needs_is_pinned_to_a_version(system: LoadSystem) -> None:
    pin, *_ = (REQUIREMENTS / f"{system.requirements}.txt").read_text().splitlines()

    assert re.fullmatch(rf"{system.package}==[0-9.]+", pin)


def test_everyone_posts_the_same_kilobyte() -> None:
    here = load_runs.HERE
    script = (here / "k6_load.js").read_text()
    text = {"text": "x" * int(re.findall(r"repeat\((\d+)\)", script)[0])}

    assert len(json.dumps(KILOBYTE)) == 1024
    assert len(json.dumps({**KILOBYTE, **text}, separators=(",", ":"))) == 1024
    assert f'"x", {len(KILOBYTE["text"])})' in (here / "post.lua").read_text()


def test_what_k6_says_to_have_passed_as_failed_has_failed(tmp_path: Path) -> None:
    (k6,) = (system for system in LOAD_PEERS if system.name == "k6")
    metrics = {"http_reqs": {"count": 9}, "http_req_failed": {"passes": 2, "fails": 7}, "checks": {"fails": 1}}
    (tmp_path / "out").write_text(json.dumps({"metrics": metrics}))

    assert k6.counted("", tmp_path / "out") == (9, 3)


def test_only_what_takes_a_script_is_asked_for_the_steps() -> None:
    able = {system.name for system in LOAD_PEERS if "steps" in system.scenarios}

    assert able == {"k6", "locust", "hyperscale"}
    assert LOAD_OURS[0].scenarios == list(SCENARIOS)


# -- the tables -----------------------------------------------------------------------------------


def _found(name: str, per_s: dict[str, float], **more: object) -> Found:
    cases = [
        Case(scenario=scenario, connections=10, rounds=[_round(rate) for rate in (value, 5 * value, 0.1 * value)])
        for scenario, value in per_s.items()
    ]
    fields = {"title": name.title(), "version": "1", "setting": "", "scriptable": True, **more}
    return Found(name=name, cases=cases, **fields)  # type: ignore[arg-type]


def _round(per_s: float) -> Ran:
    return Ran(
        requests=100,
        failed=1,
        served=100,
        connections=10,
        took_s=2.0,
        start_s=0.1,
        cpu_s=1.0,
        rate=50.0,
        warm_served=round(per_s),
        warm_generator_s=1.0,
        warm_all_s=2.0,
        peak_mb=50.0,
    )


def _report(*systems: Found, **measured: object) -> Report:
    fields = {"at": "2026-01-01", "machine": {"cpu": "2 x Chip"}, "versions": {}, **measured}
    return Report(sizes=Sizes(connections=(10,)), systems=list(systems), **fields)  # type: ignore[arg-type]


US_FOUND = _found(US, {"get": 50_000, "steps": 5_000})


@pytest.mark.parametrize(
    ("name", "theirs", "bar", "met"),
    [
        ("locust", 5_000, "at least 10x", True),
        ("locust", 5_100, "at least 10x", False),
        ("hyperscale", 5_100, "at least 10x", False),
        ("k6", 16_000, "at least 3x", True),
        ("k6", 17_000, "at least 3x", False),
        ("hey", 49_000, "ahead", True),
        ("hey", 51_000, "ahead", False),
        ("wrk", 100_000, "at least 0.5 of it", True),
        ("wrk", 101_000, "at least 0.5 of it", False),
    ],
)
def test_the_small_get_has_a_bar_beside_each(name: str, theirs: float, bar: str, met: bool) -> None:
    (verdict,) = load_report.verdicts(_report(_found(name, {"get": theirs}), US_FOUND))

    assert (verdict.bar, verdict.met) == (bar, met)


def test_elsewhere_we_are_to_be_ahead_of_what_takes_a_script() -> None:
    faster = _found("k6", {"steps": 6_000})
    plain = _found("wrk", {"steps": 6_000}, scriptable=False)

    first, second = load_report.verdicts(_report(faster, plain, US_FOUND))

    assert (first.bar, first.met, second.bar) == ("ahead", False, "")


def test_a_peer_that_is_ahead_is_named_with_the_ratio_of_the_medians() -> None:
    said = load_report.about(_report(_found("wrk", {"get": 75_000}), US_FOUND))

    assert "A peer is ahead in: small GET, keep-alive, 10 connections (Wrk; Mainstay is 1.5x slower)." in said


def test_every_cell_stands_under_a_heading() -> None:
    broken = _found("k6", {})
    kept = _report(
        _found("wrk", {"get": 75_000}, scriptable=False),
        broken,
        US_FOUND,
        crowd=Crowd(users=10, connections=10, requests=20, generator_mb=90.0),
    )

    sections = load_report.sections(kept)

    assert len(sections) == 6
    for section in sections:
        assert {len(line) for line in section.lines} == {len(section.headings)}, section.title


def test_a_crowd_is_there_when_each_has_a_connection_and_the_memory_is_enough() -> None:
    assert Crowd(users=10, connections=10, generator_mb=399).met
    assert not Crowd(users=10, connections=9, generator_mb=399).met
    assert not Crowd(users=10, connections=10, generator_mb=400).met


def test_what_is_saved_is_what_is_loaded_and_has_the_medians_and_ratios(tmp_path: Path) -> None:
    kept = _report(_found("locust", {"get": 4_000}), US_FOUND, skipped={"k6": "no network"})

    load_report.save(kept, tmp_path / "load.json")

    assert load_report.load(tmp_path / "load.json") == kept
    told = json.loads((tmp_path / "load.json").read_text())
    assert told["systems"][0]["cases"][0]["median"]["per_generator_cpu_s"] == 4_000
    assert told["verdicts"][0]["ratio"] == 12.5


@pytest.mark.parametrize(("later", "flat"), [(104.0, True), (106.0, False)])
def test_memory_is_flat_if_it_hardly_grows_once_it_has_settled(later: float, flat: bool) -> None:
    samples = {"command": [10.0] * 10, "generator": [50.0, 100.0, *[100.0] * 7, later]}

    found = Memory(at="", machine={}, versions={}, seconds=10, users=1, samples=samples)

    assert found.flat is flat


# -- a whole run ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quick_run_sets_mainstay_beside_a_peer(tmp_path: Path) -> None:
    for kind, name in (("nginx", "nginx"), ("wrk", "wrk")):
        program(kind, name)  # installed, or said to be missing
    systems = f"wrk,{US}"

    run = subprocess.run(
        [
            *(sys.executable, "-m", "bench", "--quick", "--only", "load_get", "--systems", systems),
            *("--results", str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    kept = load_report.load(tmp_path / "load.json")
    for found in kept.systems:
        (case,) = found.cases
        (ran,) = case.rounds
        assert ran.requests == pytest.approx(ran.served, abs=8)
        assert ran.failed == 0
    assert [verdict.peer for verdict in load_report.verdicts(kept)] == ["wrk"]
