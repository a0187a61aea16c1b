"""The batch suite finds out by itself what a system did, and Mainstay goes through all of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import batch_report, batch_study
from bench.batch import Report, Sizes
from bench.batch_scale import Scaled
from bench.batch_study import Studied
from bench.environments import CACHE, REQUIREMENTS
from bench.peers.studies.catalog import STUDY_OURS, STUDY_PEERS, StudySystem
from servers.programs import program

ROOT = Path(__file__).parents[2]

# -- what a system did is read from its files -----------------------------------------------------

HONEST = """
import pathlib, sys
folder, units = pathlib.Path(sys.argv[1]), int(sys.argv[2])
for seed in range(units):
    path = folder / f"{seed}.json"
    if not path.exists() CHECK:
        path.write_text("x" * 9 + str(seed))
"""


def _measured(tmp_path: Path, program: str, units: int = 20) -> Studied:
    script = tmp_path / "program.py"
    script.write_text(program)
    system = StudySystem(
        name="x", title="X", package="x", setting="", command=("{bin}/python", str(script), "{folder}", "{units}")
    )
    found = Studied(name="x", title="X", version="1", setting="", units=units)
    batch_study.measure(system, Path(sys.executable), tmp_path / "run", found, 0.1, lambda _: None)
    return found


def test_a_system_that_looks_for_names_makes_what_was_deleted_and_notices_no_damage(tmp_path: Path) -> None:
    found = _measured(tmp_path, HONEST.replace("CHECK", ""))

    assert found.trouble == []
    assert (found.again_made, found.deleted, found.repair_made) == (0, 2, 2)
    assert found.noticed == {"truncated": "no", "flipped": "no"}
    assert found.rate == pytest.approx(20 / (found.first_s or 0))
    assert found.cpu_ms


def test_a_system_that_looks_at_sizes_notices_what_is_cut_off_and_not_what_is_flipped(tmp_path: Path) -> None:
    found = _measured(tmp_path, HONEST.replace("CHECK", "or path.stat().st_size < 10"))

    assert found.noticed == {"truncated": "mended", "flipped": "no"}


def test_a_system_that_ends_with_an_error_over_damage_has_told_it(tmp_path: Path) -> None:
    refuse = "assert all(p.read_text().startswith('xxxxx') for p in folder.iterdir())"

    found = _measured(tmp_path, HONEST.replace("CHECK", "") + refuse)

    assert found.trouble == []
    assert found.noticed == {"truncated": "no", "flipped": "told"}


def test_a_system_that_makes_everything_anew_is_found_out(tmp_path: Path) -> None:
    found = _measured(tmp_path, HONEST.replace("CHECK", "or True"))

    assert found.again_made == 20
    assert batch_report.sections(_report(studies=[found]))[0].lines[0][5] == "20 of 2; 20 that were there"


def test_a_system_that_says_it_is_done_and_is_not_is_trouble(tmp_path: Path) -> None:
    found = _measured(tmp_path, HONEST.replace("CHECK", "and seed != 3"))

    assert found.trouble == ["X said that it is done, and 19 of 20 files are there"]
    assert found.again_s is None


def test_a_system_that_fails_is_trouble_with_what_it_said_last(tmp_path: Path) -> None:
    found = _measured(tmp_path, "raise SystemExit('no room left')")

    (trouble,) = found.trouble
    assert trouble == "X ended with 1 (first):\nno room left"


# -- the systems ----------------------------------------------------------------------------------


@pytest.mark.parametrize("system", STUDY_PEERS, ids=lambda system: system.name)
def test_what_a_peer_needs_is_pinned_to_a_version(system: StudySystem) -> None:
    (pin,) = (REQUIREMENTS / f"{system.requirements}.txt").read_text().splitlines()

    assert re.fullmatch(rf"{system.package}==[0-9.]+", pin)


def test_peers_are_told_the_folder_and_the_number_of_units() -> None:
    for system in STUDY_PEERS:
        words = dict.fromkeys(("bin", "here", "own", "phase"), "")
        command, _ = system.filled(system.command, folder="FOLDER", units="7", **words)

        assert "FOLDER" in " ".join(command)
        assert command[-1].endswith("7")


@pytest.mark.slow
@pytest.mark.parametrize("system", STUDY_PEERS, ids=lambda system: system.name)
def test_a_peer_runs_the_study_and_makes_only_what_was_deleted(system: StudySystem, tmp_path: Path) -> None:
    python = CACHE / (system.requirements or "") / "bin" / "python"
    if not (python.parent.parent / "installed").exists():
        pytest.skip(f"{system.package} is not installed; `make bench` does so")
    found = Studied(name=system.name, title=system.title, version="", setting="", units=5)

    batch_study.measure(system, python, tmp_path, found, 0.2, lambda _: None)

    assert found.trouble == []
    assert (found.again_made, found.repair_made) == (0, 1)


# -- whole runs -----------------------------------------------------------------------------------


def _quick(tmp_path: Path, *options: str) -> Report:
    run = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", *options, "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return batch_report.load(tmp_path / "batch.json")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quick_run_takes_mainstay_through_the_study(tmp_path: Path) -> None:
    kept = _quick(tmp_path, "--only", "batch_study", "--systems", STUDY_OURS[-1].name)

    (us,) = kept.studies
    assert (us.again_made, us.deleted, us.repair_made) == (0, 1, 1)
    assert us.noticed == {"truncated": "mended", "flipped": "mended"}
    assert None not in (us.one_s, us.first_s, us.again_s, us.repair_s)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quick_run_takes_many_units_through_a_store(tmp_path: Path) -> None:
    program("postgresql", "initdb")  # installed, or said to be missing
    kept = _quick(tmp_path, "--only", "batch_100k", "--systems", "mainstay-postgresql")

    assert [found.units for found in kept.scales] == [100, 200]
    for found in kept.scales:
        assert found.planned == found.deleted == found.units // 100
        assert 0 < (found.planning_s or 0) <= (found.run_s or 0)
        seconds = (found.submit_s, found.validation_s, found.plan_whole_s, found.again_s, found.repair_s)
        assert None not in seconds
        assert found.cpu_ms
        assert min(found.submitter_mb, found.planner_mb, found.engine_mb) > 0


# -- the tables -----------------------------------------------------------------------------------


def _report(**measured: object) -> Report:
    fields = {"at": "2026-01-01", "machine": {"cpu": "2 x Chip"}, "versions": {}, "sizes": Sizes(), **measured}
    return Report(**fields)  # type: ignore[arg-type]


def _studied(name: str, title: str, first_s: float, again_s: float, **more: object) -> Studied:
    fields = {"version": "1", "setting": "", "units": 100, "repair_s": 2.0, "deleted": 1, "repair_made": 1, **more}
    return Studied(name=name, title=title, first_s=first_s, again_s=again_s, **fields)  # type: ignore[arg-type]


PEER = _studied("joblib", "joblib", 1.0, 1.0, first_cpu_s=0.3, noticed={"truncated": "no", "flipped": "no"})
US = _studied(
    "mainstay-study", "Mainstay", 4.0, 1.0, first_cpu_s=0.6, noticed={"truncated": "mended", "flipped": "mended"}
)


def test_a_peer_that_is_ahead_is_named_with_the_ratio() -> None:
    kept = _report(studies=[PEER, US])

    assert batch_report.peers_ahead(kept) == (
        "A peer is ahead in: first run, units/s (joblib; Mainstay is 4.0x slower); "
        "CPU, ms a unit (joblib; Mainstay is 2.0x larger)."
    )
    beside = next(section for section in batch_report.sections(kept) if section.title == "Mainstay beside each")
    assert beside.lines == [["Mainstay beside joblib", "4.0x slower", "2.0x larger", "the same", "the same"]]


def test_who_did_not_notice_damage_is_told() -> None:
    said = batch_report.about(_report(studies=[PEER, US]))

    assert "was noticed by Mainstay, not noticed by joblib." in said


def test_every_cell_stands_under_a_heading() -> None:
    broken = _studied("dask", "dask.bag", 1.0, 1.0, repair_s=None)
    scales = [Scaled(store="SQLite", units=10), Scaled(store="SQLite", units=100, run_s=1.0, engine_mb=50.0)]
    kept = _report(studies=[PEER, broken, US], scales=scales)

    sections = batch_report.sections(kept)

    assert len(sections) == 5
    for section in sections:
        assert {len(line) for line in section.lines} == {len(section.headings)}, section.title


def test_what_more_units_cost_in_memory_is_told() -> None:
    def scaled(units: int, engine_mb: float) -> Scaled:
        return Scaled(store="SQLite", units=units, engine_mb=engine_mb, submitter_mb=40.0, planner_mb=40.0)

    said = batch_report.about(_report(scales=[scaled(10_000, 60.0), scaled(100_000, 72.4)]))

    assert "SQLite, 100,000 units instead of 10,000: +12 MB in an engine, +0 MB in the submitter" in said


def test_what_was_skipped_or_failed_is_told() -> None:
    broken = _studied("dask", "dask.bag", 1.0, 1.0, trouble=["dask.bag ended with 1 (first):\nTraceback\nNoSpace"])

    kept = _report(studies=[broken], skipped={"snakemake": "cannot install snakemake.txt:\nno network"})

    assert kept.trouble == broken.trouble
    assert "Skipped: snakemake (cannot install snakemake.txt:)." in batch_report.about(kept)
    assert "Trouble: dask.bag ended with 1 (first): NoSpace" in batch_report.about(kept)


def test_what_is_saved_is_what_is_loaded_and_has_the_ratios(tmp_path: Path) -> None:
    kept = _report(studies=[PEER, US], scales=[Scaled(store="SQLite", units=10)])

    batch_report.save(kept, tmp_path / "batch.json")

    assert batch_report.load(tmp_path / "batch.json") == kept
    assert b'"ratio": 0.25' in (tmp_path / "batch.json").read_bytes()
