"""Load tests on the nodes of a real cluster: what they report is what the target counted, and what cannot run sends
nothing and leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from mainstay import App
from mainstay.bundles import BundleLimits
from mainstay.client import AsyncClient
from mainstay.cluster.operator import operator_store
from mainstay.control.explain import explained
from mainstay.errors import InvalidInput
from mainstay.load import FleetDemand, LoadOptions, load_file, run_on_cluster
from mainstay.load.fleet.fleet_reports import start_skew_s
from mainstay.load.fleet.run_source import BusRunSource, HttpRunSource, RunSource
from mainstay.load.sources import LoadTest
from mainstay.stores import Query
from mainstay.web.security.tokens import Tokens
from mainstay.worker import UNFIT
from servers import Nginx, folder
from tests.cluster.cluster_program import names, squares_of
from tests.cluster.load_commands import MAINSTAY, api_of, load_run, served
from tests.cluster.load_target import ANSWER_S, TEST, LoadTarget, load_target
from tests.cluster.load_texts import DEALT_TEST, FAST_TEST, LAYERS_TEST, ROWS_TEST
from tests.cluster.local_clusters import RunningCluster, running_cluster, until
from tests.cluster.marked_processes import descendants, is_alive
from tests.cluster.node_runs import node_run
from tests.load.fleet.recorded_samples import ERROR, QUANTILES, percentiles, recorded, summary

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

#: from the request to cancel a run to its last request to the target
CANCEL_S = 2.0

#: for a Python that starts with this folder in its path
OF_VERSION_99 = """
from importlib import metadata

read = metadata.version
metadata.version = lambda name: "99.0.0" if name == "mainstay" else read(name)
"""
TEN_MINUTES_AHEAD = """
import time

read, read_ns = time.time, time.time_ns
time.time = lambda: read() + 600
time.time_ns = lambda: read_ns() + 600 * 10**9
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path_factory.mktemp("nodes") / "c", nodes=4, cores=2) as running:
        await running.ready(4)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target() -> AsyncIterator[LoadTarget]:
    async with load_target() as serving:
        yield serving


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> LoadTest:
    return written(tmp_path_factory.mktemp("test"), TEST)


@pytest.fixture(scope="module")
def nginx() -> Iterator[Nginx]:
    with folder("mainstay-load-nginx-") as place:
        server = Nginx(place)
        try:
            yield server
        finally:
            server.stop()


def written(folder: Path, text: str) -> LoadTest:
    """The test in a file with this text."""
    file = folder / "shop.py"
    file.write_text(text)
    return load_file(file)


# what users do ----------------------------------------------------------------------------------------------


async def test_a_command_reports_what_the_target_counted(tmp_path: Path, cluster: RunningCluster) -> None:
    shop = tmp_path / "shop"
    async with served(shop) as target:
        command = await load_run(shop, cluster, target, "--nodes", "2", "--cores", "2", "--html", "run.html")

        code, printed = await command.ended()

        assert code == 0, printed
        found = command.summary()
        assert found["requests"] == await target.requests()
        assert found["failed"] == 0
        assert len({one["node"] for one in found["slices"]}) == 2
        assert sum(one["requests"] for one in found["slices"]) == found["requests"]
        assert "shop begins, 2s, 2 processes" in printed
        assert "2 nodes, 2 cores" in printed
        assert "<h2>Nodes</h2>" in (shop / "run.html").read_text()
        assert await cluster.store.check() == []


@pytest.mark.parametrize("how", ["ctrl_c", "jobs_cancel"])
async def test_a_command_whose_run_is_ended_early_reports_what_the_target_counted(
    tmp_path: Path, cluster: RunningCluster, how: str
) -> None:
    shop = tmp_path / "shop"
    async with served(shop) as target:
        command = await load_run(shop, cluster, target, "--nodes", "2", "--duration", "5m")

        async def loaded() -> bool | None:
            return await target.requests() > 10 or None

        await until(loaded)
        if how == "ctrl_c":
            command.process.send_signal(signal.SIGINT)
        else:
            await cancel_running(cluster)
        code, printed = await command.ended()

        assert command.summary()["requests"] == await target.requests()
        if how == "ctrl_c":
            assert code == 130, printed
            assert "ending: the job is cancelled" in printed
        else:
            assert code not in (0, 130), printed


async def cancel_running(cluster: RunningCluster) -> None:
    """`mainstay jobs cancel`, for the run that is on."""
    [job] = (await cluster.store.find(Query(kind="load", name="shop", status=("running",)), limit=10)).jobs
    process = await asyncio.create_subprocess_exec(
        *MAINSTAY, "jobs", "cancel", job.id, "--store", operator_store(cluster.file.url), stdout=subprocess.DEVNULL
    )
    assert await process.wait() == 0


async def test_an_app_and_a_script_run_a_test_on_nodes(
    cluster: RunningCluster, target: LoadTarget, shop: LoadTest
) -> None:
    target.reset()
    load = LoadOptions(base_url=target.url, duration="1s")
    app = App(operator_store(cluster.file.url))
    app.load(shop)

    async with app:
        handle = await app.submit_load("shop", load, nodes=FleetDemand(1, on_loss="fail"), key="nightly")
        again = await app.submit_load("shop", load, nodes=FleetDemand(1, on_loss="fail"), key="nightly")
        first = await handle.result()
    second = await run_on_cluster(shop, load, nodes=1, cluster=cluster.file.url)

    assert (handle.created, again.created, again.id) == (True, False, handle.id)
    assert (first.ended, second.ended) == ("finished", "finished")
    assert first.requests + second.requests == target.total


async def test_users_arrivals_and_iterations_are_dealt_over_all_processes_which_start_together(
    tmp_path: Path, cluster: RunningCluster, target: LoadTarget
) -> None:
    async with node_run(cluster, written(tmp_path, DEALT_TEST), target, FleetDemand(4, 8)) as run:
        found = await run.ended()

    sent, by_path = target.by_pid(), {path: target.by_pid(path) for path in ("/users", "/arrivals", "/iterations")}
    assert (found.ended, found.requests, found.failed) == ("finished", target.total, 0)
    assert len(sent) == 8
    assert {report.node: report.requests for report in found.slices} == {
        name: sum(sent[pid] for pid in target.pids_below(cluster.pid(name))) for name in ("n1", "n2", "n3", "n4")
    }
    users = Counter((request.query["user"], request.pid) for request in target.requests if request.path == "/users")
    assert sorted(user for user, _ in users) == sorted(map(str, range(10)))
    assert by_path["/arrivals"].total() + found.dropped == found.arrivals + found.dropped == 42
    assert max(by_path["/arrivals"].values()) == 6
    assert by_path["/iterations"].total() == 27
    # how close together is for a machine with nothing else to do, and for `make bench`
    assert all(report.clock_doubt_s is not None for report in found.slices)
    assert 0 < start_skew_s(found.slices) < 0.5


async def first_elapsed_s(source: RunSource) -> float:
    """The time of the run at the end of the first window that a watcher gets."""
    async with asyncio.timeout(30), source.live() as updates:
        async for update in updates:
            if update.moment is not None:
                return update.moment.elapsed_s
    raise AssertionError("no window")


async def test_each_row_goes_to_one_iteration_and_percentiles_are_those_of_one_process(
    tmp_path: Path, cluster: RunningCluster, target: LoadTarget
) -> None:
    rng = random.Random(17)
    samples = [[rng.lognormvariate(-3.0, 1.5) for _ in range(20)] for _ in range(240)]
    rows = [json.dumps({"row": row, "took": took}) for row, took in enumerate(samples)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))

    async with node_run(cluster, written(tmp_path, ROWS_TEST), target, FleetDemand(4, 8)) as run:
        found = await run.ended()

    assert (found.ended, found.begun) == ("finished", 240)
    assert sorted(int(request.query["row"]) for request in target.requests) == list(range(240))
    # each process has a share of the rows, and no row of another one
    assert sorted(target.by_pid().values()) == [30] * 8
    [took] = [step.service for step in found.steps if step.step == "took"]
    assert percentiles(took) == percentiles(summary(recorded(samples)).service)
    truth = [each for times in samples for each in times]
    assert percentiles(took) == pytest.approx(
        {name: float(np.percentile(truth, q, method="inverted_cdf")) for name, q in QUANTILES.items()}, rel=ERROR
    )


async def test_a_value_goes_from_one_layer_to_the_next_on_all_nodes_and_a_failed_layer_skips_its_own(
    tmp_path: Path, cluster: RunningCluster, target: LoadTarget
) -> None:
    async with node_run(cluster, written(tmp_path, LAYERS_TEST), target, FleetDemand(4, 4)) as run:
        found = await run.ended()

    login, shop = ([each for each in target.requests if each.path == path] for path in ("/login", "/shop"))
    nodes = {name: target.pids_below(cluster.pid(name)) for name in ("n1", "n2", "n3", "n4")}
    [prepared] = {each.query["setup"] for each in login}
    [ticket] = {each.query["ticket"] for each in shop}
    assert prepared.startswith("opened by ")
    assert ticket.endswith(f", {prepared}")
    # it was prepared on one node, and is used on all
    assert sorted(sum(each.pid in pids for each in shop) for pids in nodes.values()) == [2, 2, 2, 2]
    assert len({each.pid for each in login}) == 4
    assert max(each.at_s for each in login) + ANSWER_S < min(each.at_s for each in shop)
    assert target.by_pid("/broken").total() == 2
    assert target.by_pid("/never").total() == 0
    assert found.skipped["Never"].startswith("Broken failed, which it depends on")
    assert found.requests == target.total


async def test_a_run_reports_what_nginx_counted_at_its_end_and_when_it_is_cancelled(
    tmp_path: Path, cluster: RunningCluster, target: LoadTarget, nginx: Nginx
) -> None:
    test, url = written(tmp_path, FAST_TEST), nginx.url("")
    count = RequestCount(nginx)
    async with node_run(cluster, test, target, FleetDemand(4, 4), base_url=url) as run:
        ended = await run.ended()
    counted = count.requests()
    async with node_run(cluster, test, target, FleetDemand(4, 4), base_url=url, duration="5m") as run:

        async def loaded() -> bool | None:
            return count.requests() > counted + 500 or None

        await until(loaded)
        cancelled = await run.cancelled()

    assert (ended.ended, ended.failed, ended.requests) == ("finished", 0, counted)
    assert (cancelled.failed, cancelled.requests) == (0, count.requests() - counted)


class RequestCount:
    """What nginx has answered since this was made, without the requests for its count."""

    def __init__(self, nginx: Nginx) -> None:
        self._nginx = nginx
        self._own = nginx.status().requests

    def requests(self) -> int:
        self._own += 1
        return self._nginx.status().requests - self._own


async def test_a_run_goes_through_a_server_of_the_cluster(tmp_path: Path, cluster: RunningCluster) -> None:
    shop = tmp_path / "shop"
    tokens = Tokens(tmp_path / "tokens.json")
    operator, coder = tokens.add("ops", ["admin"]), tokens.add("ann", ["code"])
    async with served(shop) as target, api_of(cluster, tokens) as url:
        refused = await load_run(shop, url, target, token=operator)
        code, printed = await refused.ended()
        assert (code, "this needs 'code'" in printed) == (2, True), printed

        command = await load_run(shop, url, target, "--cores", "1", token=coder)
        code, printed = await command.ended()
        assert code == 0, printed
        assert "shop begins, 2s, 1 process" in printed
        # the windows arrive over HTTP
        assert "1s  running  " in printed
        assert "no live data" not in printed
        found = command.summary()
        assert (found["ended"], found["requests"]) == ("finished", await target.requests())

        command = await load_run(shop, url, target, "--cores", "1", "--duration", "5m", token=coder)

        async def loaded() -> bool | None:
            return await target.requests() > found["requests"] + 10 or None

        await command.prints("shop begins, 5m, 1 process")
        await until(loaded)
        [job] = (await cluster.store.find(Query(kind="load", name="shop", status=("running",)), limit=10)).jobs
        async with AsyncClient(url, token=coder) as client, App(operator_store(cluster.file.url)) as app:
            for source in (HttpRunSource(client, job.id), BusRunSource(app.control, job.id)):
                assert await first_elapsed_s(source) <= 0.2, "a watcher that comes late gets the run from its start"
        command.process.send_signal(signal.SIGINT)
        code, printed = await command.ended()
        assert code == 130, printed
        assert "ending: the job is cancelled" in printed
        assert found["requests"] + command.summary()["requests"] == await target.requests()


# waiting ----------------------------------------------------------------------------------------------------


async def test_a_run_waits_for_a_node_that_is_still_starting_and_whose_clock_is_ten_minutes_ahead(
    tmp_path: Path, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = tmp_path / "shop"
    async with served(shop) as target:
        command = await load_run(shop, cluster, target, "--nodes", "5", "--vus", "5", "--wait", "1m")
        assert command.process.stdout is not None
        lines = [(await command.process.stdout.readline()).decode().strip()]
        starts_with(monkeypatch, tmp_path, TEN_MINUTES_AHEAD)
        late = await cluster.join("late", cores="1")

        code, printed = await command.ended()
        found = command.summary()
        late.terminate()
        await late.wait()

        assert lines == ["waiting for nodes: it needs 5 nodes, and there are 4: n1, n2, n3 and 1 more"]
        assert code == 0, printed
        assert sorted(one["node"] for one in found["slices"]) == ["late", "n1", "n2", "n3", "n4"]
        assert [one.get("loss", "") for one in found["slices"]] == [""] * 5
        assert found["requests"] == await target.requests()
        assert found["elapsed_s"] < 60


async def test_two_runs_share_the_nodes_with_tasks_a_batch_and_a_node_job(
    tmp_path: Path, cluster: RunningCluster, target: LoadTarget, shop: LoadTest
) -> None:
    app = App(operator_store(cluster.file.url), outputs=f"file://{tmp_path}/outputs?sync=off")
    squares = squares_of(app)
    async with (
        node_run(cluster, shop, target, FleetDemand(4, 4)) as first,
        # a core is left: nodes whose cores are all held claim no tasks
        node_run(cluster, shop, target, FleetDemand(3, 3)) as second,
    ):
        await first.loads_from(7)
        tasks = [await cluster.submit("add", a=number, b=1) for number in range(20)]
        members = (await cluster.control.jobs.submit_request(names.job().request())).id
        async with app:
            batch = await app.submit_batch(squares, seeds=6)
            rows = await cluster.settled([*tasks, batch.id, members])
            found = await batch.validate(force=True)
            total = await batch.read("total")
        units = [*await first.units(), *await second.units()]
        summaries = [await first.cancelled(), await second.cancelled()]

        assert {row.status for row in rows} == {"succeeded"}
        assert (found.verdict, found.expected, found.present, total) == ("succeeded", 7, 7, b"55")
        # a node that is late is not waited for: most of them are enough
        assert len(names.returns.unpack(rows[-1].result, job_id=members).value) >= 3
        assert sorted(Counter(unit.session for unit in units).values()) == [1, 2, 2, 2]
        assert sum(found.requests for found in summaries) == target.total
        assert [report.loss for found in summaries for report in found.slices] == [""] * 7


async def test_the_second_of_two_exclusive_runs_waits_for_the_first(
    cluster: RunningCluster, target: LoadTarget, shop: LoadTest
) -> None:
    alone = FleetDemand(share="exclusive")
    async with (
        node_run(cluster, shop, target, alone, vus=2) as first,
        node_run(cluster, shop, target, alone, vus=3) as second,
    ):
        before = await first.loads_from(2)

        async def waits() -> str | None:
            found = await explained(cluster.store, second.id)
            sentences = [each for section in found.sections for each in section.sentences]
            return next((each for each in sentences if first.id in each), None)

        why = await until(waits)
        row = await second.row()
        assert await second.units() == []
        asked_s = time.monotonic()
        summaries = [await first.cancelled()]
        await second.loads_from(5)
        alive = [pid for pid in before if is_alive(pid)]
        summaries.append(await second.cancelled())

        assert "place 1 of 1" in why
        assert row.reason == "waits for 3 cores and no other run beside it"
        assert [sum(report.processes for report in found.slices) for found in summaries] == [2, 3]
        begins_s = target.begins_s()
        # no request begins any more, and the cores are free for the second
        assert target.latest_s(before) - asked_s < CANCEL_S
        assert target.latest_s(before) < min(begins_s[pid] for pid in set(begins_s) - before)
        assert alive == []
        assert sum(found.requests for found in summaries) == target.total


# what cannot run --------------------------------------------------------------------------------------------


async def test_what_no_node_can_run_is_refused_and_nothing_is_half_started(
    cluster: RunningCluster, target: LoadTarget, shop: LoadTest
) -> None:
    target.reset()
    place, code_bytes = Path(shop.source.file).parent, BundleLimits().code_bytes
    with (place / "large.bin").open("wb") as large:
        large.truncate(4 * 2**30 + 1)  # takes no space
    (place / "large.py").write_bytes(b"#" * code_bytes)
    jobs, files = await everything(cluster)
    for demand, error in (
        (FleetDemand(5), "nodes: it needs 5 nodes, and there are 4: n1, n2, n3 and 1 more; if nodes are still"),
        (FleetDemand(cores=9), "cores: it needs 9 cores, and the nodes have 8"),
        (FleetDemand(1, labels={"zone": "moon"}), "nodes: no node has a label 'zone'; the labels of the nodes: none"),
        (
            FleetDemand(1, include=("large.py",)),
            rf"the code of shop has \d+ bytes; at most {code_bytes} are allowed. The largest file is large.py",
        ),
        (FleetDemand(1, include=("large.bin",)), f"the data of shop has {4 * 2**30 + 1} bytes; at most {4 * 2**30}"),
    ):
        with pytest.raises(InvalidInput, match=error):
            async with node_run(cluster, shop, target, demand, vus=20):
                pass

    assert await everything(cluster) == (jobs, files)
    assert target.total == 0


async def test_a_module_that_is_missing_on_a_node_is_named_before_any_load(
    tmp_path: Path, cluster: RunningCluster, target: LoadTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "only_here.py").write_text("")
    monkeypatch.syspath_prepend(installed)
    processes = {name: len(descendants(cluster.pid(name))) for name in ("n1", "n2", "n3", "n4")}
    async with node_run(cluster, written(tmp_path, f"import only_here\n{TEST}"), target, FleetDemand(2, 2)) as run:
        [row] = await cluster.settled([run.id])
        await cluster.settled([unit.id for unit in await run.units()])

        assert row.status == "failed"
        assert row.error is not None
        assert "module 'only_here' (imported by shop.py, line 1) is neither" in row.error.message
        assert any(f"({name})" in row.error.message for name in processes), row.error.message

        async def gone() -> bool | None:
            return all(len(descendants(cluster.pid(name))) == n for name, n in processes.items()) or None

        await until(gone)
    assert target.total == 0


async def test_a_node_of_another_version_is_not_used(
    tmp_path: Path, cluster: RunningCluster, target: LoadTarget, shop: LoadTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts_with(monkeypatch, tmp_path, OF_VERSION_99)
    node = await cluster.join("newer", cores="1")
    code = await node.wait()
    with pytest.raises(InvalidInput, match="it needs 5 nodes, and there are 4"):
        async with node_run(cluster, shop, target, FleetDemand(5)):
            pass

    assert code == UNFIT
    assert target.total == 0


async def everything(cluster: RunningCluster) -> tuple[set[str], set[str]]:
    """The ids of all jobs, and the stored bundles."""
    jobs = (await cluster.store.find(Query(), limit=1000)).jobs
    folder = cluster.folder
    return {job.id for job in jobs}, {str(path) for path in (folder / "blobs").rglob("*")}


def starts_with(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """Have the Python programs that are started from now on run this code first."""
    (folder / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
