"""Load tests on the nodes of a real cluster: what they report is what the target counted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mainstay import App
from mainstay.cluster.operator import operator_store
from mainstay.load import FleetDemand, LoadOptions, load_file, run_on_cluster
from tests.cluster.local_clusters import RunningCluster, running_cluster, until

pytestmark = pytest.mark.slow

MAINSTAY = (sys.executable, "-m", "mainstay")
TEST = """
from mainstay.load import URL, Feed, HTTPResponse, Workflow, step
from prices import PATH


class Shop(Workflow):
    vus = 4
    duration = "2s"
    data = Feed.csv("users.csv")

    @step()
    async def browse(self, url: URL = PATH) -> HTTPResponse:
        return await self.client.http.get(url, params={"user": self.vu.data["name"]})
"""


class Target:
    """The built-in target, which counts what it gets."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def requests(self) -> int:
        def read() -> int:
            with urllib.request.urlopen(f"{self.url}/stats") as answer:
                return sum(path["completed"] for path in json.load(answer)["paths"].values())

        return await asyncio.to_thread(read)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Target]:
    """A target, and a folder with a load test, a module that it imports, and its data."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shop.py").write_text(TEST)
    (folder / "prices.py").write_text('PATH = "/"')
    (folder / "users.csv").write_text("name\nann\nbob\ncat\ndan\n")
    command = [*MAINSTAY, "load", "target", "--port", "0", "--json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield Target(json.loads(await process.stdout.readline())["url"])
    finally:
        process.terminate()
        await process.wait()


class LoadCommand:
    """`mainstay load run` as its user starts it."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self._folder = folder

    async def ended(self) -> tuple[int, str]:
        """Its exit code, and all that it has printed."""
        out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, f"{out.decode()}\n{err.decode()}"

    def summary(self) -> Any:
        return json.loads((self._folder / "run.json").read_text())


async def load_run(folder: Path, cluster: RunningCluster | None, target: Target, *words: str) -> LoadCommand:
    """Start it in the folder; without a cluster, it finds the one that runs there."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAINSTAY_")}
    process = await asyncio.create_subprocess_exec(
        *MAINSTAY, "load", "run", "shop.py", "--base-url", target.url, "--json", "run.json", "--ui", "ci",
        *([] if cluster is None else ["--cluster", cluster.file.url]), *words,
        cwd=folder, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    return LoadCommand(process, folder)


async def test_a_run_on_two_nodes_reports_what_the_target_counted(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    async with (
        served(folder) as target,
        running_cluster(folder / ".mainstay" / "cluster", nodes=2, cores=1) as cluster,
    ):
        await cluster.ready(2)
        command = await load_run(folder, None, target, "--nodes", "2", "--html", "run.html")

        code, printed = await command.ended()

        assert code == 0, printed
        found = command.summary()
        assert found["requests"] == await target.requests()
        assert found["failed"] == 0
        assert sorted(one["node"] for one in found["slices"]) == ["n1", "n2"]
        assert sum(one["requests"] for one in found["slices"]) == found["requests"]
        assert "shop begins, 2s, 2 processes" in printed
        assert "2 nodes, 2 cores" in printed
        assert "<h2>Nodes</h2>" in (folder / "run.html").read_text()
        assert await cluster.store.check() == []


async def test_ctrl_c_ends_the_load_on_all_nodes_and_reports_it(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    async with served(folder) as target, running_cluster(tmp_path / "c", nodes=2, cores=1) as cluster:
        await cluster.ready(2)
        command = await load_run(folder, cluster, target, "--nodes", "2", "--duration", "5m")

        async def loaded() -> bool | None:
            return await target.requests() > 10 or None

        await until(loaded)
        command.process.send_signal(signal.SIGINT)
        code, printed = await command.ended()

        assert code == 130, printed
        assert "ending: the job is cancelled" in printed
        assert command.summary()["requests"] == await target.requests()


async def test_a_run_waits_for_a_node_that_is_still_starting(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    async with served(folder) as target, running_cluster(tmp_path / "c", nodes=1, cores=1) as cluster:
        await cluster.ready(1)
        command = await load_run(folder, cluster, target, "--nodes", "2", "--wait", "1m")
        assert command.process.stdout is not None
        lines = [(await command.process.stdout.readline()).decode().strip()]
        await cluster.join("late", cores="1")

        code, printed = await command.ended()

        assert lines == ["waiting for nodes: it needs 2 nodes, and there are 1: n1"]
        assert code == 0, printed
        assert sorted(one["node"] for one in command.summary()["slices"]) == ["late", "n1"]


async def test_more_than_the_cluster_has_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    async with served(folder) as target, running_cluster(tmp_path / "c", nodes=1, cores=1) as cluster:
        await cluster.ready(1)
        for words, error in (
            (("--nodes", "2"), "nodes: "),
            (("--cores", "3"), "cores: "),
            (("--nodes", "1", "--label", "zone=moon"), "no node has a label 'zone'"),
        ):
            code, printed = await (await load_run(folder, cluster, target, *words)).ended()

            assert (code, error in printed) == (2, True), printed
        assert await target.requests() == 0


async def test_an_app_and_a_script_run_a_test_on_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shop"
    async with served(folder) as target, running_cluster(tmp_path / "c", nodes=1, cores=1) as cluster:
        await cluster.ready(1)
        monkeypatch.chdir(folder)
        load = LoadOptions(base_url=target.url, duration="1s")
        app = App(operator_store(cluster.file.url))
        app.load(load_file("shop.py"))

        async with app:
            handle = await app.submit_load("shop", load, nodes=FleetDemand(1, on_loss="fail"), key="nightly")
            first = await handle.result()
        second = await run_on_cluster("shop.py", load, nodes=1, cluster=cluster.file.url)

        assert (first.ended, second.ended) == ("finished", "finished")
        assert first.requests + second.requests == await target.requests()
