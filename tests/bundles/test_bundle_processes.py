"""A node runs a bundle: real processes, a real bus, and a source folder that is gone before the node starts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from mainstay.cli import app
from tests.bundles.program import write_program
from tests.cluster.local_clusters import RunningCluster, running_cluster

pytestmark = pytest.mark.slow

TASKS = """
from pathlib import Path
from mainstay import App
from .prices import RATE
app = App("memory:")

@app.task(name="read")
async def read() -> list:
    return [RATE, __file__, (Path(__file__).parents[1] / "data/rates.csv").read_text()]

@app.task(name="read-in-child", process=True)
def read_in_child() -> list:
    return [RATE, __file__, (Path(__file__).parents[1] / "data/rates.csv").read_text()]
"""


class Operator:
    """Commands of an operator of one cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def run(self, *words: str) -> str:
        command = ["cluster", "bundle", *words, "--folder", str(self._folder)]
        done = await asyncio.to_thread(CliRunner().invoke, app, command, env={"COLUMNS": "160"})
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    async def json(self, *words: str) -> Any:
        return json.loads(await self.run(*words, "--json"))


class NodeProcess:
    """`mainstay node join`, with what it prints in a file."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def output(self) -> str:
        return self._log.read_text()

    async def stopped(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


@contextlib.asynccontextmanager
async def joined(cluster: RunningCluster, target: str, folder: Path, name: str) -> AsyncIterator[NodeProcess]:
    """A node in a folder that has another `shop`, which must not be imported."""
    write_program(folder / "elsewhere", {"shop/__init__.py": "raise SystemExit('the wrong shop')"})
    log = folder / f"{name}.log"
    command = [cluster.file.node_url, target, "--name", name, "--cache", str(folder / "cache"), "--grace", "1s"]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mainstay", "node", "join", *command),
            cwd=folder / "elsewhere",
            stdout=output,
            stderr=output,
            # the packages of the tests are found in the folder of the repository, not here
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        )
    try:
        yield NodeProcess(process, log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def results(cluster: RunningCluster, *tasks: str) -> list[Any]:
    rows = await cluster.settled([await cluster.submit(task) for task in tasks])
    return [msgspec.msgpack.decode(row.result) if row.result else row.error for row in rows]


async def test_a_node_runs_a_bundle_whose_source_is_gone_and_repairs_its_cache(tmp_path: Path) -> None:
    source = write_program(
        tmp_path / "source",
        {
            "shop/__init__.py": "",
            "shop/tasks.py": TASKS,
            "shop/prices.py": "RATE = 1.5",
            "data/rates.csv": "a,b\n1,2\n",
        },
    )
    async with running_cluster(tmp_path / "c", nodes=0) as cluster:
        operator = Operator(tmp_path / "c")
        pushed = await operator.json(
            *("push", "shop.tasks:app", "--root", str(source), "--data", "data", "--name", "shop")
        )
        shutil.rmtree(source)
        assert (pushed["files"], pushed["sent_parts"]) == (4, 4)

        digest = pushed["digest"]
        folder = tmp_path / "cache/bundles" / digest
        expected = [1.5, str(folder / "shop/tasks.py"), "a,b\n1,2\n"]
        async with joined(cluster, "bundle:shop", tmp_path, "n1") as node:
            status = await cluster.ready()
            assert [each.beat.digest for each in status.nodes] == [digest]
            assert status.nodes[0].beat.target == "shop.tasks:app"
            assert await results(cluster, "read", "read-in-child") == [expected, expected]
            assert await node.stopped() == 0

        damaged = folder / "data/rates.csv"
        damaged.chmod(0o600)
        damaged.write_text("a,b\n1,9\n")
        async with joined(cluster, f"bundle:{digest[:8]}", tmp_path, "n2") as node:
            await cluster.ready()
            assert "file data/rates.csv is damaged in the cache and is fetched again" in node.output
            assert await results(cluster, "read") == [expected]
            assert not list(folder.rglob("__pycache__"))
            assert await node.stopped() == 0

        assert digest[:12] in await operator.run("list")
        assert "data/rates.csv" in await operator.run("show", "shop")
        assert (await operator.json("show", "shop"))["history"][0]["digest"] == digest
        kept = await operator.json("prune", "--keep", "0")
        assert (kept["removed"], list(kept["kept"])) == ([], [digest])
        assert "name shop removed" in await operator.run("remove", "shop")
        await cluster.status(lambda found: all(each.state == "closed" for each in found.nodes))
        assert [each["digest"] for each in (await operator.json("remove", digest))["removed"]] == [digest]


async def test_a_bundle_that_needs_a_module_ends_the_node_with_an_error_that_names_both(tmp_path: Path) -> None:
    source = write_program(tmp_path / "source", {"shop.py": "import nowhere_installed\napp = None"})
    async with running_cluster(tmp_path / "c", nodes=0, managers=1) as cluster:
        pushed = await Operator(tmp_path / "c").json("push", "shop:app", "--root", str(source), "--name", "shop")

        async with joined(cluster, "bundle:shop", tmp_path, "n1") as node:
            assert await node.process.wait() == 2
            assert "imports 'nowhere_installed', which is not installed here" in node.output
            assert f"the program is bundle {pushed['digest']}" in node.output
            assert node.output.count("cannot start") == 1
        async with joined(cluster, "bundle:shoop", tmp_path, "n2") as node:
            assert await node.process.wait() == 2
            assert "no bundle has the name 'shoop' (names: shop)" in node.output
