"""`jobs status`, `validate`, `resume`, `outputs` and `report`, on studies that real workers ran."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.batch.cli.lab import EXPECTED, GRID, STUDY, Lab

pytestmark = pytest.mark.slow


def ran(lab: Lab) -> str:
    """The id of the study once it was run."""
    done = lab.study("--json")
    job_id: str = json.loads(done.stdout)["id"]
    return job_id


@pytest.fixture(scope="module")
def partial(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, str]:
    """A study of which two seeds of two sets failed; it is only looked at."""
    lab = Lab(tmp_path_factory.mktemp("partial"))
    lab.spoil()
    return lab, ran(lab)


@contextmanager
def working(lab: Lab) -> Iterator[None]:
    """While a worker is there."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "mainstay", "worker", "sir:app"],
        cwd=lab.folder, env=lab.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


def test_status_tells_units_outputs_and_what_to_do(partial: tuple[Lab, str]) -> None:
    lab, job_id = partial

    shown = lab.command("jobs", "status", job_id)
    told = lab.json("jobs", "status", job_id)

    assert shown.exit_code == 0
    assert "8 run, 0 already present, ✗ 4 failed" in shown.stdout
    assert "score: 2 made, 0 failed, 2 not made: their inputs are incomplete" in shown.stdout
    assert f"mainstay jobs resume {job_id}" in shown.stdout
    assert (told["type"], told["status"], told["settled"]) == ("batch", "partial", True)
    assert told["units"] == {
        "total": 12, "there": 0, "made": 12, "idle": 0, "waiting": 0, "running": 0, "succeeded": 8, "skipped": 0,
        "failed": 4, "cancelled": 0, "done": 8,
    }  # fmt: skip
    assert told["outputs"] == {"expected": EXPECTED, "there": 10}
    assert [one["command"].split()[2] for one in told["advice"]] == ["resume", "resume", "validate", "force"]


def test_watching_what_is_settled_ends_at_once_with_the_code_that_says_how(partial: tuple[Lab, str]) -> None:
    lab, job_id = partial

    lines = lab.command("jobs", "status", job_id, "--watch", "--json")

    assert (lines.exit_code, len(lines.stdout.splitlines())) == (3, 1)
    assert json.loads(lines.stdout)["status"] == "partial"
    assert lab.command("jobs", "status", job_id, "--watch").exit_code == 3
    assert lab.command("jobs", "status", job_id, "--for", "1s").exit_code == 2


def test_watching_as_data_is_a_line_for_each_change_up_to_the_end(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    job_id = lab.run("batch", "run", "sir.py", "simulate", *GRID, "--no-wait").stdout.strip()
    command = [sys.executable, "-m", "mainstay", "jobs", "status", job_id, "--watch", "--json", "--store", lab.url]
    with subprocess.Popen(command, env=lab.environ, stdout=subprocess.PIPE, text=True, encoding="utf-8") as watch:
        assert watch.stdout is not None
        lines = [json.loads(watch.stdout.readline())]
        with working(lab):
            lines += [json.loads(line) for line in watch.stdout]

    assert watch.returncode == 0
    assert (lines[0]["status"], lines[-1]["status"], lines[-1]["units"]["done"]) == ("pending", "succeeded", 12)
    told = [{name: line[name] for name in ("version", "units", "aggregations", "at_work", "waits")} for line in lines]
    assert all(before != after for before, after in itertools.pairwise(told))


def test_a_dry_run_says_which_units_and_why_and_what_has_to_wait(partial: tuple[Lab, str]) -> None:
    lab, job_id = partial

    shown = lab.command("jobs", "resume", job_id, "--dry-run", "--limit", "3").stdout
    told = lab.json("jobs", "resume", job_id, "--dry-run")

    assert shown.splitlines() == [
        "a resume would run 4 units",
        "",
        "  result is missing (nothing was published): 4",
        "    beta=0.5_gamma=0.1-s1",
        "    beta=0.5_gamma=0.1-s2",
        "    beta=0.5_gamma=0.2-s1",
        "    1 more; --limit shows them",
        "",
        "  score: 2 cannot be made now: their inputs are incomplete; made when they are complete",
        "  best: 1 cannot be made now: their inputs are incomplete; made when they are complete",
    ]
    assert [one["unit"] for one in told["run"]][-1] == "beta=0.5_gamma=0.2-s2"
    assert [(one["of"], one["why"]) for one in told["left"]] == [
        ("score", "its inputs are incomplete"),
        ("score", "its inputs are incomplete"),
        ("best", "its inputs are incomplete"),
    ]


def test_a_unit_is_found_by_the_end_of_its_id(partial: tuple[Lab, str]) -> None:
    lab, job_id = partial
    unit = lab.json("jobs", "list", "--parent", job_id, "--limit", "1")["jobs"][0]["id"]

    for part in (unit[-12:], unit[9:]):
        assert lab.json("jobs", "show", part)["job"]["id"] == unit
    assert lab.command("jobs", "explain", unit[-12:]).exit_code == 0


def test_outputs_are_listed_by_state(partial: tuple[Lab, str]) -> None:
    lab, job_id = partial

    everything = lab.json("jobs", "outputs", job_id)
    missing = lab.json("jobs", "outputs", job_id, "--missing", "--limit", "2")
    shown = lab.command("jobs", "outputs", job_id, "--missing", "--limit", "2").stdout

    assert everything["counts"] == {"present": 10, "missing": 7}
    assert (missing["matching"], [one["state"] for one in missing["outputs"]]) == (7, ["missing", "missing"])
    there = [one["path"] for one in everything["outputs"] if one["state"] == "present"]
    assert all((lab.folder / "mainstay-outputs" / path).is_file() for path in there)
    assert shown.startswith("10 present, 7 missing, in ")
    assert shown.endswith("5 more; --all shows them\n")
    assert len(lab.json("jobs", "outputs", job_id, "--missing", "--limit", "2", "--all")["outputs"]) == 7


def test_the_report_names_errors_gaps_and_every_look(partial: tuple[Lab, str], tmp_path: Path) -> None:
    lab, job_id = partial

    told = lab.json("jobs", "report", job_id)
    shown = lab.command("jobs", "report", job_id, columns=80).stdout
    written = lab.command("jobs", "report", job_id, "--html", str(tmp_path / "r.html"))

    assert [(one["type"], one["units"]) for one in told["troubles"]] == [("ValueError", 4)]
    assert [(one["params"]["beta"], one["intact"]) for one in told["outcomes"]] == [
        (0.2, 3), (0.2, 3), (0.5, 1), (0.5, 1),
    ]  # fmt: skip
    assert [(look["verdict"], look["present"], look["missing"]) for look in told["validations"]] == [("partial", 10, 7)]
    assert re.search(r"^  0\.1 ██  ▒▒$", shown, flags=re.MULTILINE)
    assert max(len(line) for line in shown.splitlines() if "mainstay jobs" not in line) <= 80
    assert written.stdout == f"written to {tmp_path / 'r.html'}\n"
    assert "ValueError: seed 2 does not settle" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert lab.command("jobs", "report", job_id, "--html", str(tmp_path / "none" / "r.html")).exit_code == 2


def test_what_is_asked_of_a_batch_is_refused_for_another_job(partial: tuple[Lab, str]) -> None:
    lab, _ = partial
    job_id = lab.command("submit", "sir.greet").stdout.strip()

    for command in ("validate", "resume", "outputs", "report"):
        done = lab.command("jobs", command, job_id)
        assert (done.exit_code, "is not a batch" in done.output) == (2, True), command
    assert lab.json("jobs", "status", job_id)["status"] == "pending"
    assert "sir.greet pending" in lab.command("jobs", "status", job_id).stdout
    assert lab.command("jobs", "status", job_id, "--watch", "--for", "1ms").exit_code == 2


def test_what_is_missing_is_made_by_mended_code_with_this_code(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.spoil()
    job_id = ran(lab)
    mended = STUDY.replace("if params", "if False and params")
    (tmp_path / "sir.py").write_text(mended, encoding="utf-8")
    by_app = ("--app", "sir:app", "--with-this-code")

    planned = lab.run("jobs", "resume", job_id, *by_app, "--dry-run")
    with working(lab):
        resumed = lab.run("jobs", "resume", job_id, *by_app, "--wait", "--json")

    assert "a resume would run 4 units" in planned.stdout, planned.stderr
    assert "it was submitted for" in planned.stdout
    assert resumed.returncode == 0, resumed.stderr
    told = json.loads(resumed.stdout)
    assert (told["resumed_from"], told["status"]) == (job_id, "succeeded")
    assert (told["units"]["there"], told["units"]["succeeded"]) == (8, 4)
    note = "4 units were made by other code than the batch was submitted with"
    assert told["mixed"] == note
    assert lab.json("jobs", "status", job_id)["status"] == "succeeded", "the batch itself is whole as well"
    assert note in lab.command("jobs", "status", job_id).stdout
    assert f"; {note}" in lab.command("jobs", "report", job_id).stdout
    refused = lab.command("jobs", "resume", job_id, "--with-this-code")
    assert (refused.exit_code, "--app MODULE:APP" in refused.output) == (2, True)


def test_resume_runs_what_is_missing_and_a_second_one_finds_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.spoil()
    job_id = ran(lab)
    lab.mend()

    with working(lab):
        resumed = lab.command("jobs", "resume", job_id, "--wait")

    assert resumed.exit_code == 0, resumed.output
    assert "12: 4 run, 8 already present, 0 failed" in resumed.stdout
    assert "started 2 times" in resumed.stdout
    told = lab.json("jobs", "report", job_id)
    assert (told["troubles"], [look["verdict"] for look in told["validations"]]) == ([], ["partial", "succeeded"])
    assert lab.json("jobs", "resume", job_id) == {"id": job_id, "how": "nothing", "units": 0}
    assert lab.command("jobs", "resume", job_id, "--dry-run").stdout == (
        "nothing to do: all outputs are present and intact\n"
    )


def test_damage_after_success_is_found_and_repaired_by_a_job_of_its_own(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    job_id = ran(lab)
    gone, flipped = lab.outputs()[:2]
    gone.unlink()
    flipped.write_bytes(bytes(reversed(flipped.read_bytes())))

    found = lab.command("jobs", "validate", job_id, "--force")
    told = lab.json("jobs", "validate", job_id, code=3)

    assert found.exit_code == 3
    assert found.stdout.startswith("15 of 17 outputs are present, 1 missing, 1 corrupt\n")
    assert "the batch stays succeeded" in found.stdout
    assert (told["was"], told["status"], told["verdict"]) == ("succeeded", "succeeded", "partial")
    with working(lab):
        repaired = lab.json("jobs", "resume", job_id, "--wait")
    assert (repaired["resumed_from"], repaired["status"]) == (job_id, "succeeded")
    assert (repaired["units"]["there"], repaired["units"]["succeeded"]) == (10, 2)
    assert lab.command("jobs", "validate", job_id).exit_code == 0


def test_an_output_that_is_restored_makes_a_partial_batch_succeed(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.spoil()
    job_id = ran(lab)
    lab.mend()
    with working(lab):
        # the same units by another job: their outputs are where the first one looks for them
        lab.study("--json")

    done = lab.json("jobs", "validate", job_id)

    assert (done["was"], done["status"], done["verdict"]) == ("partial", "succeeded", "succeeded")


def test_storage_that_is_away_is_no_verdict(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    job_id = ran(lab)
    (tmp_path / "mainstay-outputs").rename(tmp_path / "elsewhere")

    assert lab.command("jobs", "validate", job_id).exit_code == 2
    told = lab.json("jobs", "report", job_id)
    assert (told["outputs"]["source"], told["outcomes"]) == ("unknown", [])
    assert "could not be checked" in lab.command("jobs", "report", job_id).stdout
