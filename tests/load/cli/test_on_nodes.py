"""`mainstay load run --nodes`, with a cluster in the process of the command whose manager only pretends to lead."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstay.control import Failure
from mainstay.lifecycle import Move
from mainstay.load.cli import on_nodes
from mainstay.load.fleet.spec import FleetOptions
from mainstay.load.handler import LoadFailed
from mainstay.load.stats.model import ThresholdOutcome
from tests.cli.conftest import Shell
from tests.load.fleet.led_cluster import LedCluster, lead, submitted, summary
from tests.load.fleet.small_cluster import SmallCluster
from tests.load.fleet.test_follower import Leader
from tests.load.trials import GET, HEAD


class Place(LedCluster):
    """A folder with a load test, and a cluster with one node."""

    def __init__(self, folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        (folder / "shop.py").write_text(HEAD + GET)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(on_nodes, "app_of", self.app_of)
        monkeypatch.setattr(on_nodes, "cluster_place", lambda named: on_nodes.ClusterPlace("memory:", " --cluster C"))
        self.folder = folder
        self.shell = shell

    def run(self, *words: str) -> Any:
        done = self.shell.run(
            "load", "run", "shop.py", "--base-url", "http://127.0.0.1:1", "--vus", "8", *words, columns=100
        )
        if self.failure is not None:
            raise self.failure
        return done


@pytest.fixture
def place(tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.delenv("MAINSTAY_CLUSTER_URL", raising=False)
    return Place(tmp_path, shell, monkeypatch)


def test_a_run_on_nodes_is_shown_and_reported_like_one_here(place: Place) -> None:
    done = place.run("--nodes", "1", "--on-loss", "continue", "--json", "run.json", "--html", "run.html")

    assert done.exit_code == 0, done.output
    options = msgspec.msgpack.decode(place.jobs[0].payload, type=FleetOptions)
    assert (options.demand.nodes, options.on_loss, options.vus) == (1, "continue", 8)
    lines = done.stdout
    assert f"job {place.jobs[0].id} is submitted; durability: " in lines
    assert "shop begins, 1m, 2 processes" in lines
    assert "100 in 1s" in lines
    assert "/srv/m1/run.ndjson" not in lines
    assert json.loads((place.folder / "run.json").read_text())["requests"] == 100
    assert "n2" in (place.folder / "run.html").read_text()


def test_json_on_stdout_is_all_of_stdout(place: Place) -> None:
    done = place.run("--nodes", "1", "--json", "-")

    assert json.loads(done.stdout)["requests"] == 100


def test_a_wait_for_cores_is_a_line_with_its_reason(place: Place) -> None:
    async def waits(cluster: SmallCluster) -> None:
        leader = Leader(cluster, await submitted(cluster))
        await leader.claim()
        await cluster.behind.drivers.await_placement(leader.job, "waits for 8 cores: 4 of 8 are free")
        await asyncio.sleep(1.5)
        now_ms = cluster.clock.now_ms()
        moves = (Move(to="pending", reason="placed", fields={"due_ms": now_ms}, flag="note"),)
        await cluster.behind.drivers.act(leader.job.id, lambda *_: moves, actor="leader")
        await lead(cluster)

    place.lead = waits
    done = place.run("--nodes", "1")

    assert done.exit_code == 0
    assert done.stdout.count("the run waits for 8 cores: 4 of 8 are free\n") == 1


def test_a_line_that_a_node_sends_cannot_control_the_terminal(place: Place) -> None:
    async def printing(cluster: SmallCluster) -> None:
        leader = Leader(cluster, await submitted(cluster))
        await leader.claim()
        await asyncio.sleep(0.1)
        await leader.live.start(summary().header)
        leader.live.said(0, "red\tis \x1b[31mred")
        await leader.complete(summary())
        await leader.live.stop(summary())

    place.lead = printing
    done = place.run("--nodes", "1")

    assert "[0] red\tis \\x1b[31mred" in done.stderr
    assert "\x1b[31m" not in done.output


def test_a_detached_run_prints_its_id_and_how_to_get_its_report(place: Place) -> None:
    async def nothing(cluster: SmallCluster) -> None:
        del cluster

    place.lead = nothing
    done = place.run("--nodes", "1", "--detach")

    job_id = done.stdout.strip()
    assert done.exit_code == 0
    assert f"its report: mainstay load report {job_id} --cluster C" in done.stderr.replace("\n", " ")


def test_ctrl_c_cancels_the_job_and_its_numbers_are_reported(place: Place) -> None:
    async def stopped(cluster: SmallCluster) -> None:
        leader = Leader(cluster, await submitted(cluster))
        await leader.claim()
        await leader.live.start(summary().header)
        os.kill(os.getpid(), signal.SIGINT)
        while (await cluster.behind.jobs.get(leader.job.id)).status != "cancelling":
            await asyncio.sleep(0.01)
        await leader.save(summary(ended="cancelled: cancelled", verdict="interrupted"))
        await cluster.behind.attempts.confirm_cancelled([leader.job])

    place.lead = stopped
    done = place.run("--nodes", "1", "--json", "run.json")

    assert done.exit_code == 130
    assert "ending: the job is cancelled" in done.stdout
    assert json.loads((place.folder / "run.json").read_text())["requests"] == 100


def test_exit_codes_are_those_of_a_run_here(place: Place) -> None:
    async def broken(cluster: SmallCluster) -> None:
        leader = Leader(cluster, await submitted(cluster))
        await leader.claim()
        outcome = ThresholdOutcome(text="p95 < 1ms", passed=False, value=0.1, shown="100 ms")
        await leader.complete(summary(verdict="failed", thresholds=[outcome]))

    async def refused(cluster: SmallCluster) -> None:
        why = "could not be started: slice 0 (n1): no module httpx"
        leader = Leader(cluster, await submitted(cluster))
        await leader.claim()
        await cluster.behind.attempts.fail([Failure(leader.job, LoadFailed(why))])

    place.lead = broken
    assert place.run("--nodes", "1").exit_code == 99
    place.lead = refused
    done = place.run("--nodes", "1")
    assert (done.exit_code, "is failed: could not be started: slice 0 (n1): no module httpx" in flat(done)) == (2, True)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--label", "zone=eu"), "label: is for a run on the nodes of a cluster; add --nodes N or --cluster URL"),
        (("--on-loss", "fail"), "on-loss: is for a run on the nodes"),
        (("--nodes", "9"), "nodes: 9 are more than the 8 users"),
        (("--nodes", "2"), "nodes: it needs 2 nodes, and there are 1: n1"),
        (("--cores", "5"), "cores: it needs 5 cores, and the nodes have 4"),
        (("--nodes", "1", "--share", "most"), "share: 'most' is not one of low"),
        (("--nodes", "1", "--label", "zone"), "label: 'zone' is not of the form name=value"),
        (("--nodes", "1", "--processes", "2"), "processes: is for one machine"),
        (("--nodes", "1", "--store", "memory:"), "store: a run on nodes is a job of the cluster"),
        (("--nodes", "1", "--queue", "mail"), "queue: a run on nodes waits in a queue of its own"),
        (("--nodes", "1", "--ndjson", "run.ndjson"), "ndjson: needs every window"),
        (("--nodes", "1", "--hdr", "run.hlog"), "hdr: needs every window"),
        (("--nodes", "1", "--durability", "applied"), "durability: "),
    ],
)
def test_what_cannot_be_is_refused_by_its_option(place: Place, words: tuple[str, ...], error: str) -> None:
    done = place.run(*words)

    assert (done.exit_code, flat(done).startswith(f"error: {error}")) == (2, True), done.stderr
    assert place.jobs == []


def test_without_a_cluster_the_error_says_how_to_start_one(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAINSTAY_CLUSTER_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(HEAD + GET)

    done = shell.run("load", "run", "shop.py", "--nodes", "2")
    rule = "error: cluster: no cluster runs in .mainstay/cluster; start one (mainstay cluster up), or name one"
    assert (done.exit_code, flat(done).startswith(rule)) == (2, True)
    done = shell.run("load", "run", "shop.py", "--cluster", "elsewhere")
    assert "cluster: elsewhere is neither the URL of a cluster nor the folder of a running one" in flat(done)
    done = shell.run("load", "run", "shop.py", "--cluster", "http://127.0.0.1:1")
    assert "GET /bundles/limits was not answered" in flat(done)


def flat(done: Any) -> str:
    """An error as one line."""
    return " ".join(done.stderr.split())
