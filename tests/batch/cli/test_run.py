"""`mainstay batch run`, with real workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.batch.cli.lab import EXPECTED, GRID, Lab
from tests.cli.terminal import Terminal
from tests.stores.sqlite.process import until
from tests.worker.crews import alive

pytestmark = pytest.mark.slow


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_one_command_submits_works_and_reports_and_the_same_again_runs_nothing(lab: Lab) -> None:
    first = lab.study("--report", "sir.html")

    assert (first.returncode, first.stderr.splitlines()[-1]) == (0, "succeeded: 12 of 12 units, 0 failed")
    assert "12: 12 run, 0 already present, 0 failed" in first.stdout
    assert "gamma beta\n      0.2 0.5\n  0.1 ██  ██\n  0.2 ██  ██\n" in first.stdout
    page = (lab.folder / "sir.html").read_text(encoding="utf-8")
    assert "<title>sir.simulate: succeeded</title>" in page

    again = json.loads(lab.study("--json").stdout)
    assert (again["status"], again["units"]["there"], again["units"]["made"]) == ("succeeded", 12, 0)
    anew = json.loads(lab.study("--json", "--force").stdout)
    assert (anew["units"]["there"], anew["units"]["succeeded"]) == (0, 12)


def test_a_study_that_lacks_outputs_ends_with_three_and_says_what_to_do(lab: Lab) -> None:
    lab.spoil()

    done = lab.study()

    assert done.returncode == 3
    assert "8 run, 0 already present, 4 failed" in done.stdout
    assert "4  ValueError: seed 2 does not settle" in done.stdout
    assert all(f"mainstay jobs {verb} " in done.stdout for verb in ("resume", "validate", "force"))


def test_a_study_that_makes_nothing_or_fails_too_much_ends_with_one(lab: Lab) -> None:
    lab.spoil()

    done = lab.study("--failure-budget", "5%", "--json")

    told = json.loads(done.stdout)
    assert (done.returncode, told["status"]) == (1, "failed")
    assert "failure budget is 5%" in told["reason"]


def test_sets_come_from_a_file_and_other_workers_may_do_the_work(lab: Lab) -> None:
    (lab.folder / "sets.csv").write_text("beta,gamma\n0.1,1\n0.2,2\n", encoding="utf-8")
    words = ("batch", "run", "sir:app", "simulate", "--params-file", "sets.csv", "--seeds", "7-7")
    left = lab.run(*words, "--no-wait")
    job_id = left.stdout.strip()
    shown = lab.json("jobs", "status", job_id)
    assert (left.returncode, shown["status"], shown["units"]["total"]) == (0, "pending", 2)

    worker = subprocess.Popen(
        [sys.executable, "-m", "mainstay", "worker", "sir:app"],
        cwd=lab.folder, env=lab.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        done = lab.run(*words, "--for", "60s")
        assert lab.command("jobs", "status", job_id, "--watch").exit_code == 0
    finally:
        worker.terminate()
        worker.wait()

    assert done.returncode == 0
    assert [json.loads(path.read_text())["peak"] for path in lab.outputs()] == [0.8, 1.6]


def test_without_workers_it_says_so_and_waits_no_longer_than_asked(lab: Lab) -> None:
    done = lab.run("batch", "run", "sir.py", "simulate", *GRID, "--for", "100ms")

    assert done.returncode == 2
    assert "no worker is alive; the batch waits for one:\n  mainstay worker sir:app" in done.stderr
    assert "is still pending after 100ms; it continues" in done.stderr


def test_ctrl_c_leaves_the_batch_where_it_is_and_ends_the_workers(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab.folder)
    words = ("batch", "run", "sir.py", "waits", "--param", "n=1", "--workers", "1")
    with Terminal(*words) as terminal:
        terminal.wait_for("at work: n=1")
        workers = lab.json("workers", "list")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130

    assert "to come back:" in terminal.shown
    job_id = lab.json("jobs", "list")["jobs"][0]["id"]
    assert f"mainstay jobs status {job_id} --watch --app sir:app" in terminal.shown
    assert lab.json("jobs", "status", job_id)["status"] == "running"
    pids = [session["pid"] for session in workers["sessions"]]
    assert pids
    assert not any(alive(pid) for pid in pids)


def test_sigterm_gives_units_back_and_counts_no_crash(lab: Lab) -> None:
    """Schedulers, systemd and `timeout` send it; three of them made the batch fail."""
    command = [sys.executable, "-m", "mainstay", "batch", "run", "sir.py", "waits", "--param", "n=1", "--workers", "1"]
    for _ in range(2):
        process = subprocess.Popen(command, cwd=lab.folder, env=lab.environ, stderr=subprocess.PIPE, text=True)
        until(lambda: _units_at_work(lab) == 1)
        process.send_signal(signal.SIGTERM)
        said = process.communicate()[1]
        assert process.returncode == 143
        assert "to come back:" in said

    job_id = lab.json("jobs", "list")["jobs"][0]["id"]
    (unit,) = [row for row in lab.json("jobs", "list", "--parent", job_id)["jobs"] if row["name"].endswith(":unit")]
    assert (unit["crashes"], unit["failures"], unit["status"]) == (0, 0, "pending")
    lab.let_go()
    assert lab.run(*command[3:]).returncode == 0


def _units_at_work(lab: Lab) -> int:
    if not (lab.folder / "jobs.db").exists():
        return 0
    jobs = lab.json("jobs", "list")["jobs"]
    return lab.json("jobs", "status", jobs[0]["id"])["units"]["running"] if jobs else 0


def test_a_live_picture_shows_units_outputs_and_what_is_at_work(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab.folder)
    with Terminal("batch", "run", "sir.py", "waits", "-p", "n=1,2", "-w", "1", columns=80) as terminal:
        terminal.wait_for("at work: n=1, n=2")
        lab.let_go()
        assert terminal.end() == 0

    assert "units    " in terminal.shown
    assert "0 of 2, 0%" in terminal.shown
    assert "2 run, 0 already present, 0 failed" in terminal.shown


def test_workers_that_cannot_start_end_the_wait_with_what_they_said(lab: Lab) -> None:
    # the file is fine for the command, and raises in whoever comes next
    guard = (
        'import os\nif os.environ.get("BROKEN_FOR") not in (None, str(os.getpid())):\n    raise RuntimeError("no")\n'
    )
    source = lab.folder / "sir.py"
    source.write_text(guard + source.read_text(encoding="utf-8"), encoding="utf-8")
    program = (
        "import os\nos.environ['BROKEN_FOR'] = str(os.getpid())\nimport sys\nfrom mainstay.cli import main\n"
        f"sys.argv = ['mainstay', 'batch', 'run', 'sir.py', 'simulate', *{GRID!r}, '--workers', '1']\nmain()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=lab.folder, env=dict(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "the workers ended with 2 before the batch; their last lines:" in done.stderr
    assert "RuntimeError: no" in done.stderr


def test_expected_outputs_are_those_of_units_and_aggregations_in_whatever_queue_they_are_made(lab: Lab) -> None:
    told = json.loads(lab.study("--json", "--queue", "night").stdout)

    assert told["outputs"] == {
        "source": "validation",
        "expected": EXPECTED,
        "present": EXPECTED,
        "missing": 0,
        "corrupt": 0,
        "unreadable": 0,
        "why": "",
    }
    assert {name: one["succeeded"] for name, one in told["aggregations"].items()} == {"score": 4, "best": 1}
