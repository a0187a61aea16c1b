"""`mainstay load watch`: a run that another command has submitted, on its cluster or through a server of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from io import StringIO

import pytest

from mainstay.cli import ClusterWhere, Connected
from mainstay.control import Control
from mainstay.errors import InvalidInput
from mainstay.load.cli import watched_job
from mainstay.load.cli.live import Display
from mainstay.load.run_clusters import HttpCluster
from tests.cli.conftest import Shell
from tests.load.cli.moments import header, moments
from tests.load.web.led_run import LedRun, led_run, streaming_client

MOMENTS = list(moments(header("browse"), seconds=5.0))
BUS = ClusterWhere(cluster="nats://bus/main")
HTTP = ClusterWhere(cluster="http://127.0.0.1:8330")


class Screen(StringIO):
    """A log that a test waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)

    async def has(self, text: str) -> None:
        while text not in self.getvalue():
            self.written.clear()
            await self.written.wait()


@contextlib.asynccontextmanager
async def reached(run: LedRun, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The command reaches the cluster of this run: over the bus, and over HTTP."""
    async with run.operator("ann") as control, run.server("s1") as server:

        @contextlib.asynccontextmanager
        async def connected(where: ClusterWhere) -> AsyncIterator[Connected]:
            yield Connected(control, None)

        class ThisServer(HttpCluster):
            def __init__(self, url: str) -> None:
                self._client = streaming_client(server)

        monkeypatch.setattr(watched_job, "connected", connected)
        monkeypatch.setattr(watched_job, "HttpCluster", ThisServer)
        yield


@pytest.mark.parametrize("where", [BUS, HTTP], ids=["bus", "HTTP"])
async def test_a_watched_run_is_shown_from_any_moment_and_goes_on_when_its_watcher_leaves(
    where: ClusterWhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    async with led_run() as run, reached(run, monkeypatch):
        await run.pass_on(MOMENTS[:30])
        console = Display(file=screen, width=200)
        watching = asyncio.create_task(watched_job._followed(where, run.job.id, "ci", console))
        await screen.has("3s")
        await run.pass_on(MOMENTS[30:])
        await screen.has("5s")
        os.kill(os.getpid(), signal.SIGINT)
        followed, left = await watching
        job = await Control(run.store).jobs.get(run.job.id)

    assert (left, followed.job.status, job.status) == (True, "running", "running")
    assert "shop begins" in screen.getvalue()
    assert "500/s" in screen.getvalue()
    assert "leaving: the run goes on" in screen.getvalue()


@pytest.mark.parametrize("where", [BUS, HTTP], ids=["bus", "HTTP"])
async def test_a_watched_run_is_followed_to_its_end(where: ClusterWhere, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    async with led_run() as run, reached(run, monkeypatch):
        console = Display(file=screen, width=200)
        watching = asyncio.create_task(watched_job._followed(where, run.job.id, "ci", console))
        await run.pass_on(MOMENTS)
        await screen.has("5s")
        await run.end()
        followed, left = await watching

    assert (left, followed.job.status) == (False, "succeeded")
    assert followed.summary is not None


async def test_a_job_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with led_run() as run, reached(run, monkeypatch):
        other = await run.control.jobs.submit("send")
        with pytest.raises(InvalidInput, match="is a task job, not a load test"):
            await watched_job._followed(BUS, other.id, "none", Display())


def test_without_a_cluster_the_command_says_how_to_name_one(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.delenv("MAINSTAY_CLUSTER_URL", raising=False)
    monkeypatch.chdir(str(tmp_path))
    done = shell.run("load", "watch", "018f6e7c-5d3b-7c1e-9f52-4de452e6b59d", MAINSTAY_STORE="")

    assert done.exit_code == 2
    assert "mainstay cluster up" in done.output
