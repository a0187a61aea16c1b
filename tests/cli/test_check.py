from __future__ import annotations

import asyncio
import importlib
import json
import random
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner, Result

from mainstay.cli import app
from mainstay.control import Control, JobRequest
from mainstay.control.check import Report
from mainstay.errors import StoreDamaged
from mainstay.stores import JobStore, open_store

runner = CliRunner()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with enough waiting jobs to have pages to damage."""
    path = tmp_path / "jobs.db"

    async def make() -> None:
        store = await open_store(f"sqlite:///{path}")
        control = Control(store, rng=random.Random(1))
        for n in range(40):
            await control.jobs.submit("work.do", {"n": n, "text": "x" * 3000})
        await store.close()

    asyncio.run(make())
    return path


def run(*words: str, columns: int = 100) -> Result:
    return runner.invoke(app, ["check", *words], catch_exceptions=False, env={"COLUMNS": str(columns)})


def sql(path: Path, statement: str) -> None:
    db = apsw.Connection(str(path))
    db.execute(statement)
    db.close()


def test_a_clean_store_exits_with_zero_and_says_how_much_was_checked(path: Path) -> None:
    done = run("--store", f"sqlite:///{path}")

    assert done.exit_code == 0
    assert done.stdout.startswith("clean; 40 rows checked")


def test_the_store_comes_from_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTAY_STORE", f"sqlite:///{path}")

    assert run().exit_code == 0


def test_violations_exit_with_one_until_they_are_repaired(path: Path) -> None:
    url = f"sqlite:///{path}"
    sql(path, "UPDATE jobs SET lane = 0 WHERE rowid = 3")
    sql(path, "UPDATE jobs SET payload = x'c1' WHERE rowid = 5")

    found = run("--store", url)
    assert found.exit_code == 1
    assert "wrong_lane" in found.stdout
    assert "bad_payload" in found.stdout
    assert "mainstay check --repair" in found.stdout

    mended = run("--store", url, "--repair")
    assert mended.exit_code == 0
    assert "put to quarantined" in " ".join(mended.stdout.split())
    assert "clean now: 3 violations repaired" in mended.stdout

    assert run("--store", url).exit_code == 0


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_table_fits_the_terminal(path: Path, columns: int) -> None:
    sql(path, "UPDATE jobs SET payload = x'c1', priority = 5000")

    shown = run("--store", f"sqlite:///{path}", columns=columns).stdout

    # commands are there to be copied, and never folded
    assert max(len(line) for line in shown.splitlines() if not line.startswith("  mainstay ")) <= columns


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_a_job_id_stays_on_one_line_and_digests_are_shortened(path: Path, columns: int) -> None:
    sql(path, "UPDATE jobs SET payload = x'c1' WHERE rowid = 5")
    url = f"sqlite:///{path}"
    [job_id] = {found["job_id"] for found in json.loads(run("--store", url, "--json").stdout)["violations"]}

    shown = run("--store", url, columns=columns).stdout

    assert any(job_id in line for line in shown.splitlines() if "mainstay" not in line)
    assert re.search(r"sha256\s+[0-9a-f]{8}…", shown)
    assert not re.search(r"[0-9a-f]{32}", shown)


def test_in_a_pipe_each_finding_is_one_line_with_its_job(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql(path, "UPDATE jobs SET payload = x'c1' WHERE rowid = 5")
    monkeypatch.delenv("COLUMNS", raising=False)

    done = runner.invoke(app, ["check", "--store", f"sqlite:///{path}"], catch_exceptions=False)

    found = [line for line in done.stdout.splitlines() if re.match(r"[0-9a-f-]{36} ", line)]
    assert [line.split()[1] for line in found] == ["bad_payload", "payload_changed"]
    assert [line for line in done.stdout.splitlines() if line != line.rstrip()] == []


def test_the_hint_repeats_the_store_that_was_given_and_not_the_one_of_the_environment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql(path, "UPDATE jobs SET lane = 0 WHERE rowid = 3")
    url = f"sqlite:///{path}"

    monkeypatch.setenv("MAINSTAY_STORE", "sqlite:///another.db")
    assert f"  mainstay check --repair --store {url}\n" in run("-s", url).stdout

    monkeypatch.setenv("MAINSTAY_STORE", url)
    assert "  mainstay check --repair\n" in run().stdout


def test_what_looks_like_evidence_is_to_be_kept_and_looked_at_before_it_is_mended(path: Path) -> None:
    url = f"sqlite:///{path}"
    sql(path, "UPDATE jobs SET lane = 0 WHERE rowid = 3")
    assert "copy the file" not in run("--store", url).stdout

    sql(path, "UPDATE events SET reason = 'all fine' WHERE job_id = (SELECT id FROM jobs WHERE rowid = 5)")
    shown = run("--store", url).stdout

    assert "copy the file" in shown
    look, mend = re.findall(r"^  mainstay (.+)$", shown, flags=re.MULTILINE)
    assert mend.startswith("check --repair")
    assert "all fine" in runner.invoke(app, look.split(), catch_exceptions=False).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [((), "nothing was changed"), (("--repair",), "completed repairs stay")],
)
def test_ctrl_c_says_how_far_it_came_and_what_was_changed(
    path: Path, terminal: None, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    asyncio.run(_submit_a_page_more(path))
    _press_ctrl_c_after_the_first_page(monkeypatch)

    done = run("--store", f"sqlite:///{path}", *words)

    assert (done.exit_code, done.stdout, done.stderr) == (130, "", f"stopped after 200 of 240 rows; {said}\n")


def test_ctrl_c_is_json_too_when_asked(path: Path, terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(_submit_a_page_more(path))
    _press_ctrl_c_after_the_first_page(monkeypatch)

    done = run("--store", f"sqlite:///{path}", "--json")

    assert done.exit_code == 130
    report = json.loads(done.stdout)
    assert (report["clean"], report["error"]["code"]) == (None, "interrupted")


def test_json_is_the_whole_report_for_programs(path: Path) -> None:
    sql(path, "UPDATE jobs SET lane = 0 WHERE rowid = 3")

    done = run("--store", f"sqlite:///{path}", "--json")

    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert (report["clean"], report["checked"]) == (False, 40)
    [violation] = report["violations"]
    assert violation["code"] == "wrong_lane"
    assert violation["repaired"] is None

    mended = json.loads(run("--store", f"sqlite:///{path}", "--json", "--repair").stdout)
    assert mended["clean"] is True
    assert mended["violations"][0]["repaired"]


def test_a_missing_file_is_an_error_and_not_a_new_database(tmp_path: Path) -> None:
    done = run("--store", f"sqlite:///{tmp_path}/nowhere.db")

    assert done.exit_code == 2
    assert "there is no database" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_store_at_all_is_an_error_that_says_how_to_name_one() -> None:
    done = run()

    assert done.exit_code == 2
    assert "MAINSTAY_STORE" in done.stderr


def test_an_error_is_json_too_when_asked(tmp_path: Path) -> None:
    done = run("--store", f"sqlite:///{tmp_path}/nowhere.db", "--json")

    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["code"] == "store_error"


def refused_with_advice(path: Path, *words: str) -> None:
    before = path.read_bytes()

    done = run("--store", f"sqlite:///{path}", *words)

    assert done.exit_code == 2, done.output
    assert "damaged as a file" in done.stderr
    assert ".recover" in done.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("words", [(), ("--repair",)])
@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
def test_a_truncated_file_is_told_apart_with_advice_and_left_alone(path: Path, part: float, words: tuple[str]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])

    refused_with_advice(path, *words)


@pytest.mark.parametrize("words", [(), ("--repair",)])
def test_a_page_of_noise_is_told_apart_with_advice_and_left_alone(path: Path, words: tuple[str]) -> None:
    data = bytearray(path.read_bytes())
    root = _page_of(path, "jobs")
    data[root * 4096 : (root + 1) * 4096] = random.Random(1).randbytes(4096)
    path.write_bytes(data)

    refused_with_advice(path, *words)


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"dear diary, " * 1000)

    refused_with_advice(path)


def test_a_flipped_bit_anywhere_never_crashes_and_never_passes_for_a_different_job(path: Path) -> None:
    """Wherever the bit is: the file is refused, or the row is found damaged, or the bit did not matter."""
    data = path.read_bytes()
    rng = random.Random(11)
    seen = set()
    for _ in range(60):
        at = rng.randrange(len(data))
        flipped = bytearray(data)
        flipped[at] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        done = run("--store", f"sqlite:///{path}")
        assert done.exit_code in (0, 1, 2), at
        seen.add(done.exit_code)
    assert {0, 1} <= seen


def test_opening_a_truncated_file_raises_store_damaged(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])

    with pytest.raises(StoreDamaged, match="damaged as a file"):
        asyncio.run(open_store(f"sqlite:///{path}"))


async def _submit_a_page_more(path: Path) -> None:
    store = await open_store(f"sqlite:///{path}")
    await Control(store, rng=random.Random(2)).jobs.submit_many([JobRequest("work.do")] * 200)
    await store.close()


@pytest.fixture
def terminal() -> Iterator[None]:
    """Ctrl-C as a program at a terminal finds it, whatever an earlier test of this process has set."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _press_ctrl_c_after_the_first_page(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("mainstay.cli.check")
    check = module.check

    async def pressed(store: JobStore, *, repair: bool, progress: Callable[[int, int], None]) -> Report:
        def told(done: int, total: int) -> None:
            progress(done, total)
            signal.raise_signal(signal.SIGINT)

        return await check(store, repair=repair, progress=told)

    monkeypatch.setattr(module, "check", pressed)


def _page_of(path: Path, table: str) -> int:
    db = apsw.Connection(str(path))
    [(root,)] = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
    db.close()
    return int(root) - 1
