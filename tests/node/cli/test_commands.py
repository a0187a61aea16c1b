"""`mainstay node`, and what other commands show of node jobs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner, Result

from mainstay.cli import app
from mainstay.control import Control
from mainstay.stores import JobStore, open_store
from tests.node.fleet import units_of
from tests.node.phases import PhasedJob, phased_job

T = TypeVar("T")

PROGRAM = """
from mainstay import App
from mainstay.node import Node, NodeResult

app = App("sqlite:///{url}")


@app.node_job(name="compact")
class Compact:
    async def local(self, node: Node, table: str, pages: int = 1) -> int:
        return pages

    async def leader(self, results: list[NodeResult], table: str, pages: int = 1) -> int:
        return sum(one.result for one in results)
"""


class Shell:
    """Commands on one store."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "jobs.db"
        self.job = self.do(_id_of_phased_job)

    def do(self, act: Callable[[JobStore], Awaitable[T]]) -> T:
        async def main() -> T:
            store = await open_store(f"sqlite:///{self.file}")
            try:
                return await act(store)
            finally:
                await store.close()

        return asyncio.run(main())

    def run(self, *words: str, columns: int = 100, code: int = 0) -> Result:
        env = {"MAINSTAY_STORE": f"sqlite:///{self.file}", "COLUMNS": str(columns), "TERMINAL_WIDTH": str(columns)}
        done = CliRunner().invoke(app, list(words), env=env)
        assert done.exit_code == code, (done.output, done.exception)
        return done

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code).stdout)


async def _id_of_phased_job(store: JobStore) -> str:
    job: PhasedJob = await phased_job(store, more=3)
    return job.id


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_nodes_are_listed_with_state_labels_and_work_and_the_leader_is_named(shell: Shell) -> None:
    shown = shell.run("node", "list").stdout
    lines = {line.split()[0]: line for line in shown.splitlines()[2:-1]}

    assert "live, leads" in lines["succeeded"]
    assert "zone=b" in lines["running"]
    assert "compact (running)" in lines["running"]
    assert "succeeded leads the placement of work, epoch 1" in shown
    data = shell.json("node", "list")
    assert (data["leader"]["node"], data["leader"]["epoch"]) == ("succeeded", 1)
    assert next(each for each in data["nodes"] if each["name"] == "running")["work"][0]["job"] == shell.job


def test_a_store_without_nodes_tells_how_to_start_one(tmp_path: Path) -> None:
    class Empty(Shell):
        def __init__(self) -> None:
            self.file = tmp_path / "empty.db"
            self.do(lambda store: store.stats())

    assert "mainstay worker MODULE:APP --node NAME" in Empty().run("node", "list").stdout


def test_a_job_is_shown_with_its_nodes_its_quorum_and_its_leader_phase(shell: Shell) -> None:
    shown = shell.run("node", "show", shell.job).stdout

    assert "1 of 10 members succeeded, 6 needed (majority)" in shown
    assert "not begun" in shown
    assert "! 1 lost, ✗ 1 failed, ▸ 1 running" in shown
    rows = [line.split()[0] for line in shown.splitlines() if line.split()[1:2] in (["!"], ["✗"], ["▸"], ["✓"])]
    assert rows[1:] == ["lost", "failed", "running", "succeeded"], "those that need attention come first"
    assert f"mainstay node retry {shell.job}" in shown


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_the_table_fits_the_screen(shell: Shell, columns: int) -> None:
    for words in (("node", "show", shell.job), ("node", "list")):
        for line in shell.run(*words, columns=columns).stdout.splitlines():
            assert len(line) <= columns or "mainstay " in line or shell.job in line, line


def test_nodes_of_some_phases_are_selected(shell: Shell) -> None:
    data = shell.json("node", "show", shell.job, "--phase", "failed", "--phase", "lost")
    assert [member["node"] for member in data["members"]] == ["failed", "lost"]
    assert data["counts"]["assigned"] == 4
    assert data["advice"][0]["command"].startswith(f"mainstay node retry {shell.job}")
    refused = shell.run("node", "show", shell.job, "--phase", "gone", code=2)
    assert "'gone' is not a phase; use lost, failed" in refused.output


def test_one_node_is_shown_with_its_error_its_result_and_its_story(shell: Shell) -> None:
    failed = shell.run("node", "show", shell.job, "--node", "failed").stdout
    assert "Error: it broke" in failed
    assert "assigned to node failed" in failed
    assert "node/succeeded by succeeded" in shell.run("node", "show", shell.job, "--node", "succeeded").stdout
    data = shell.json("node", "show", shell.job, "--node", "running")
    assert (data["phase"], data["progress"]["message"]) == ("running", "packing")
    assert [event["to"] for event in data["events"]] == ["pending", "dispatched", "running"]
    assert "'x' is not a member" in shell.run("node", "show", shell.job, "--node", "x", code=2).output


def test_failed_nodes_are_run_again_and_others_are_refused(shell: Shell) -> None:
    refused = shell.run("node", "retry", shell.job, "failed", "succeeded", code=2)
    assert "node succeeded is succeeded; only failed ones can be retried" in refused.output
    assert "is not a node of job" in shell.run("node", "retry", shell.job, "x", code=2).output

    done = shell.run("node", "retry", shell.job, "failed", "--reason", "the disk is new", "--actor", "ann")
    assert "1 node runs it again: failed" in done.stdout
    story = shell.json("node", "show", shell.job, "--node", "failed")["events"]
    assert (story[-1]["to"], story[-1]["reason"], story[-1]["actor"]) == ("pending", "the disk is new", "ann")
    assert "has no failed node" in shell.run("node", "retry", shell.job, code=2).output


def test_another_job_is_refused(shell: Shell) -> None:
    async def submit(store: JobStore) -> str:
        return (await Control(store).jobs.submit("mail.send")).id

    other = shell.do(submit)
    for words in (("node", "show", other), ("node", "retry", other)):
        assert "is not a node job" in shell.run(*words, code=2).output


def test_explain_tells_what_a_job_and_a_unit_wait_for(shell: Shell) -> None:
    assert "It waits for its quorum: 1 of 10 members succeeded" in shell.run("jobs", "explain", shell.job).stdout
    unit = shell.do(lambda store: units_of(store, shell.job))["node/failed"].id
    assert f"mainstay node retry {shell.job} failed" in shell.run("jobs", "explain", unit).stdout


def test_a_node_job_is_submitted_with_checked_arguments(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vacuum_program.py").write_text(PROGRAM.replace("{url}", str(tmp_path / "other.db")), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    to_app = ("--app", "vacuum_program:app")

    def submit(*words: str) -> Result:
        return CliRunner().invoke(app, ["submit", "compact", *words, *to_app])

    done = submit("table=events", "pages=3", "--json")
    assert done.exit_code == 0, done.output
    job_id = json.loads(done.stdout)["id"]
    assert json.loads(done.stdout)["validated"] is True
    shown = CliRunner().invoke(app, ["node", "show", job_id, *to_app])
    assert "No node is active on this store." in shown.stdout
    for words, message in (
        (("pages=many", "table=x"), "compact.pages"),
        (("tabel=x",), "did you mean 'table'?"),
        (("table=x", "--queue", "mail"), "queue"),
        ((), "table"),
    ):
        refused = submit(*words)
        assert refused.exit_code == 2, refused.output
        assert message in refused.output.replace("\n", " ") + str(refused.exception)
    assert "did you mean compact?" in str(
        CliRunner().invoke(app, ["submit", "compacts", "table=x", *to_app]).output
    ).replace("'", "")
    sys.modules.pop("vacuum_program", None)


def test_a_submit_that_no_active_node_could_run_is_refused(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = PROGRAM.replace("{url}", str(shell.file)).replace(
        'name="compact"', 'name="compact", labels={"disk": "x"}'
    )
    (tmp_path / "label_program.py").write_text(program, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["submit", "compact", "table=x", "--app", "label_program:app"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert "labels.disk: no active node has the label disk=x" in refused.output
    later = CliRunner().invoke(app, [*words, "--delay", "1h"])
    assert later.exit_code == 0, later.output
    sys.modules.pop("label_program", None)
