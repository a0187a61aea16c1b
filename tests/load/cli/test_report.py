"""`mainstay load report` and `compare`, on what runs have left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mainstay.load.stats.tally import Tally, to_json
from tests.cli.conftest import Shell
from tests.load.cli.moments import header, moments


def kept(path: Path, *, slower: float = 1.0, failing: float = 0.0) -> str:
    """A summary as a run leaves it."""
    of = header("login", "browse")
    tally = Tally(of)
    told = list(moments(of, seconds=10, a_second=1000, failing=failing, slower=slower))
    for moment in told:
        tally.add(moment.window)
    path.write_bytes(to_json(tally.summary(elapsed_s=10.0, thresholds=told[-1].thresholds)))
    return str(path)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> str:
    return kept(tmp_path_factory.mktemp("runs") / "before.json")


def test_a_run_is_reported_again_from_what_it_left(shell: Shell, before: str) -> None:
    done = shell.run("load", "report", before, columns=None)

    assert done.exit_code == 0
    assert "requests  20,000 in 10s, 2,000/s" in done.stdout
    assert "✓  p95 of browse < 200ms for 10s" in done.stdout


def test_it_is_written_in_every_form(shell: Shell, before: str, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"run.{kind}" for kind in ("html", "csv", "junit", "json")}

    done = shell.run(
        "load", "report", before, *(word for kind, path in files.items() for word in (f"--{kind}", str(path))),
        columns=None,
    )  # fmt: skip

    assert done.exit_code == 0
    assert all(f"{path} is written" in done.stdout for path in files.values())
    assert "requests  20,000" not in done.stdout
    assert json.loads(files["json"].read_bytes())["requests"] == 20_000
    assert files["html"].read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("kind", ["hdr", "otlp"])
def test_histograms_are_not_made_of_a_summary(shell: Shell, before: str, kind: str, tmp_path: Path) -> None:
    done = shell.run("load", "report", before, f"--{kind}", str(tmp_path / "run.out"))

    assert done.exit_code == 2
    assert "give the recorded stream" in done.stderr
    assert not (tmp_path / "run.out").exists()


def test_json_on_stdout_is_all_there_is(shell: Shell, before: str) -> None:
    done = shell.run("load", "report", before, "--json", "-")

    assert json.loads(done.stdout)["requests"] == 20_000


@pytest.mark.parametrize(
    ("kind", "begins"), [("html", "<!doctype html>"), ("csv", "workflow,step,requests"), ("junit", "<?xml")]
)
def test_any_report_on_stdout_is_all_there_is(
    shell: Shell, before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, begins: str
) -> None:
    monkeypatch.chdir(tmp_path)

    done = shell.run("load", "report", before, f"--{kind}", "-", "--json", "run.json")

    assert done.exit_code == 0
    assert done.stdout.startswith(begins)
    assert "is written" not in done.stdout
    assert "run.json is written" in done.stderr
    assert [path.name for path in tmp_path.iterdir() if "jobs.db" not in path.name] == ["run.json"]


@pytest.mark.parametrize("command", [("report",), ("compare", "again")])
def test_two_reports_do_not_go_to_the_same_place(shell: Shell, before: str, command: tuple[str, ...]) -> None:
    words = ("load", command[0], before, *([before] if len(command) > 1 else []))

    stdout = shell.run(*words, "--html", "-", "--json", "-")
    file = shell.run(*words, "--html", "run.x", "--json", "run.x", columns=None)
    nowhere = shell.run(*words, "--html", "/dev/null", "--json", "/dev/null")

    assert (stdout.exit_code, file.exit_code, nowhere.exit_code) == (2, 2, 0)
    assert "also goes to stdout" in stdout.stdout
    assert "is the file of --html as well" in file.stderr


def test_runs_that_cannot_be_compared_end_the_command_with_97(shell: Shell, before: str, tmp_path: Path) -> None:
    other = json.loads(Path(before).read_bytes())
    other["header"]["workflows"][0]["model"] = "10 users"
    (tmp_path / "other.json").write_text(json.dumps(other))

    done = shell.run("load", "compare", before, str(tmp_path / "other.json"), columns=None)

    assert done.exit_code == 97
    assert done.stdout.startswith("Cannot tell: the runs are not comparable\n")


def test_a_comparison_goes_to_stdout_as_a_page(shell: Shell, before: str) -> None:
    done = shell.run("load", "compare", before, before, "--html", "-")

    assert done.stdout.startswith("<!doctype html>")
    assert done.stdout.rstrip().endswith("</html>")


def test_what_got_worse_makes_the_command_end_with_one(shell: Shell, before: str, tmp_path: Path) -> None:
    after = kept(tmp_path / "after.json", slower=1.5)

    worse = shell.run("load", "compare", before, after, columns=None)
    better = shell.run("load", "compare", after, before)
    tolerated = shell.run("load", "compare", before, after, "--tolerance", "80%")
    same = shell.run("load", "compare", before, before)

    assert [each.exit_code for each in (worse, better, tolerated, same)] == [1, 0, 0, 0]
    assert "Shop.browse" in worse.stdout


def test_a_comparison_is_written_as_page_and_as_data(shell: Shell, before: str, tmp_path: Path) -> None:
    page, data = tmp_path / "change.html", tmp_path / "change.json"

    told = shell.run("load", "compare", before, before, "--html", str(page), "--json", str(data))
    printed = shell.run("load", "compare", before, before, "--json", "-")

    assert (told.exit_code, printed.exit_code) == (0, 0)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads(data.read_bytes())["worse"] == json.loads(printed.stdout)["worse"] == 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("nothing.json", "is neither a file nor the id of a job"),
        ("01a1e534-b789-735b-93be-3e8c318707ce", "no job 01a1e534-b789-735b-93be-3e8c318707ce"),
    ],
)
def test_a_result_that_is_not_there_is_named(shell: Shell, given: str, says: str) -> None:
    done = shell.run("load", "report", given, columns=None)

    assert done.exit_code == 2
    assert says in done.stderr


def test_a_job_that_is_no_load_test_is_refused(shell: Shell) -> None:
    (job_id,) = shell.submit()

    done = shell.run("load", "report", job_id, columns=None)

    assert done.exit_code == 2
    assert "is a task job, not a load test" in done.stderr


def test_a_file_that_is_no_result_is_refused(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"a": 1}', encoding="utf-8")

    done = shell.run("load", "report", str(path), columns=None)

    assert done.exit_code == 2
    assert "is neither a recorded stream nor a JSON summary" in done.stderr


def test_a_bad_tolerance_is_refused_by_its_name(shell: Shell, before: str) -> None:
    done = shell.run("load", "compare", before, before, "--tolerance", "ten", columns=None)

    assert (done.exit_code, "tolerance: 'ten' is not a share" in done.stderr) == (2, True)
