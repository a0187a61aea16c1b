"""Load tests on nodes whose parts are killed, frozen or cut off under load: no load is doubled, and every request that
the target counted is in the report, or in the part that the report tells as unknown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
import pytest_asyncio

from mainstay.load import FleetDemand, load_file
from mainstay.load.sources import LoadTest
from mainstay.load.stats.model import SliceReport, Summary
from servers import Proxy
from tests.cluster.load_target import ANSWER_S, TEST, LoadTarget, load_target
from tests.cluster.local_clusters import RunningCluster, running_cluster, until
from tests.cluster.marked_processes import family, waited_s
from tests.cluster.node_runs import NodeRun, assert_nothing_was_lost, node_run

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

#: of the test, over all processes
USERS = 8
#: a node that is only silent is given up after this time
UNPROVEN_S = 25.0
#: until the load of a process that was killed goes on elsewhere, and that of a node that is gone
KILLED_S, GONE_S = 5.0, 30.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path_factory.mktemp("faults") / "c", managers=3, nodes=4, cores=2) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target() -> AsyncIterator[LoadTarget]:
    async with load_target() as serving:
        yield serving


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> LoadTest:
    file = tmp_path_factory.mktemp("test") / "shop.py"
    file.write_text(TEST)
    return load_file(file)


async def leader_of(cluster: RunningCluster, run: NodeRun, *, above: int = 0) -> tuple[str, int]:
    """The manager that leads a run, and its epoch, as soon as there is one with an epoch above this."""

    async def look() -> tuple[str, int] | None:
        row = await run.row()
        managers = {session.id: session.worker for session in await cluster.store.sessions()}
        if row.status != "running" or row.token <= above or row.session not in managers:
            return None
        return managers[row.session], row.token

    return await until(look)


async def test_a_run_goes_on_when_the_manager_that_leads_it_is_killed(
    cluster: RunningCluster, target: LoadTarget, shop: LoadTest
) -> None:
    await cluster.ready(4)
    async with node_run(cluster, shop, target, FleetDemand(4, 4)) as run:
        before = await run.loads_from(4)
        slices = await run.units()
        leader, epoch = await leader_of(cluster, run)

        cluster.kill(leader)
        successor, higher = await leader_of(cluster, run, above=epoch)
        await run.reported_anew()
        after = await run.units()
        found = await run.cancelled()

        assert (successor, higher) != (leader, epoch)
        assert found.requests == target.total
        assert found.failed == 0
        assert_nothing_was_lost(found, target)
        assert set(target.by_pid()) == before
        assert target.most_under_way <= USERS
        assert [(row.id, row.token, row.session) for row in after] == [
            (row.id, row.token, row.session) for row in slices
        ]
        assert [(row.token, row.losses) for row in after] == [(1, 0)] * 4
        events = await cluster.store.events(run.id)
        assert {epoch, higher} <= {event.token for event in events}
    assert await cluster.store.check() == []


async def test_a_cancel_right_after_a_takeover_keeps_what_was_measured(
    cluster: RunningCluster, target: LoadTarget, shop: LoadTest
) -> None:
    await cluster.ready(4)
    async with node_run(cluster, shop, target, FleetDemand(2, 2)) as run:
        await run.loads_from(2)
        leader, epoch = await leader_of(cluster, run)

        cluster.kill(leader)
        await leader_of(cluster, run, above=epoch)
        found = await run.cancelled()

        assert found.requests == target.total
        assert_nothing_was_lost(found, target)


async def test_a_run_goes_on_when_the_bus_is_killed(
    cluster: RunningCluster, target: LoadTarget, shop: LoadTest
) -> None:
    await cluster.ready(4)
    async with node_run(cluster, shop, target, FleetDemand(4, 4)) as run:
        before = await run.loads_from(4)
        killed = cluster.pid("nats")

        cluster.kill("nats")

        async def restarted() -> bool | None:
            return cluster.pid("nats") not in (0, killed) or None

        await until(restarted)
        await run.reported_anew()
        found = await run.cancelled()

        assert found.requests == target.total
        assert_nothing_was_lost(found, target)
        assert set(target.by_pid()) == before
        assert target.most_under_way <= USERS
    assert await cluster.store.check() == []


async def test_killed_parts_of_nodes_are_replaced_and_what_is_unknown_is_told(
    cluster: RunningCluster, target: LoadTarget, shop: LoadTest
) -> None:
    await cluster.ready(4)
    async with node_run(cluster, shop, target, FleetDemand(4, 4)) as run:
        before = await run.loads_from(4)
        on = {name: target.pids_below(cluster.pid(name)) for name in ("n1", "n2", "n3", "n4")}
        [generator] = on["n1"]
        engine = target.parents[min(on["n2"])][0]
        worker = target.parents[min(on["n3"])][1]

        killed_s = time.monotonic()
        for pid in (generator, engine, worker):
            os.kill(pid, signal.SIGKILL)
        now = await run.loads_from(7)
        took_s = replaced_s(target, now - before, killed_s)
        found = await run.cancelled()

        assert [len(pids) for pids in on.values()] == [1] * 4
        lost = [report for report in found.slices if report.loss]
        assert {report.node for report in lost} == {"n1", "n2", "n3"}
        assert len(found.slices) == 7
        assert now > before
        # no silence had to pass: a process of the same host has seen the end
        assert took_s < KILLED_S
        assert all(report.gap_s < UNPROVEN_S for report in lost), lost
        assert target.most_under_way <= USERS
        assert_unknown_is_told(found, target, lost={report.node: on[report.node] for report in lost}, slices=4)
    assert await cluster.store.check() == []


def replaced_s(target: LoadTarget, generators: set[int], since_s: float) -> float:
    """How long it took until all of these had sent a request, by the clock of the target. What the last of them waited
    for a processor is left out: a Python that starts beside other tests takes several times as long as alone."""
    begins_s = target.begins_s()
    last = max(generators, key=lambda pid: begins_s[pid])
    took_s, starved_s = begins_s[last] - since_s, waited_s(last)
    print(f"replaced after {took_s:.1f} s, of which {starved_s:.1f} s without a processor")
    return took_s - starved_s


def assert_unknown_is_told(found: Summary, target: LoadTarget, *, lost: dict[str, set[int]], slices: int) -> None:
    """What the target counted more than the report is at most what the lost slices could send while it is unknown."""
    counted = target.by_pid()
    reports = {report.node: report for report in found.slices if report.loss}
    for node, pids in lost.items():
        unknown = sum(counted[pid] for pid in pids) - reports[node].requests
        assert 0 <= unknown <= most_in(reports[node], slices), (node, unknown, reports[node])
    known = [report.requests for report in found.slices if not report.loss]
    gone = {pid for pids in lost.values() for pid in pids}
    assert sorted(known) == sorted(n for pid, n in counted.items() if pid not in gone)
    assert counted.total() - found.requests == sum(counted[pid] for pid in gone) - sum(
        report.requests for report in reports.values()
    )


def most_in(report: SliceReport, slices: int) -> int:
    """How many requests the users of one of the slices can have sent in its gap, and have had under way before."""
    return round(USERS / slices * (report.gap_s / ANSWER_S + 2))


async def test_a_node_that_is_frozen_cut_off_or_gone_is_replaced_when_its_load_has_stopped(
    cluster: RunningCluster, target: LoadTarget, shop: LoadTest
) -> None:
    with Proxy.before(cluster.file.node_url) as proxy:
        # they have the most free cores, so the run gets them
        nodes = {
            "frozen": await cluster.join("frozen", cores="3"),
            "cut": await cluster.join("cut", cores="3", url=proxy.url),
            "gone": await cluster.join("gone", cores="3"),
        }
        await cluster.ready(7)
        async with node_run(cluster, shop, target, FleetDemand(3, 3)) as run:
            await run.loads_from(3)
            on = {name: target.pids_below(process.pid) for name, process in nodes.items()}
            frozen, gone = (family(nodes[name].pid) for name in ("frozen", "gone"))

            proxy.refuse()
            proxy.cut()
            harmed_s = time.monotonic()
            for pid in gone:
                os.kill(pid, signal.SIGKILL)
            with stopped(frozen):
                now = await run.loads_from(6)
                most = target.most_under_way
            took_s = replaced_s(target, now - set().union(*on.values()), harmed_s)
            proxy.accept()
            await cluster.ready(6)
            await run.reported_anew()
            found = await run.cancelled()
            await ended([nodes["frozen"], nodes["cut"]])

        begins_s, sent = target.begins_s(), target.by_pid()
        new = set(sent) - set().union(*on.values())
        assert most <= USERS
        assert target.latest_s(on["cut"]) < min(begins_s[pid] for pid in new)
        assert target.latest_s(on["cut"]) - harmed_s < UNPROVEN_S
        assert target.latest_s(on["gone"]) - harmed_s < ANSWER_S
        lost = [report for report in found.slices if report.loss]
        assert sorted(report.node for report in lost) == ["cut", "frozen", "gone"]
        assert took_s < GONE_S
        assert all(report.gap_s < 2 * UNPROVEN_S for report in lost), lost
        # when it goes on, its users send nothing: at most, it was frozen while it wrote some of their calls
        assert target.after(harmed_s + UNPROVEN_S, on["frozen"]) < USERS // 2
        assert_unknown_is_told(found, target, lost=on, slices=3)
    assert await cluster.store.check() == []


async def ended(nodes: Sequence[asyncio.subprocess.Process]) -> None:
    """Stop nodes that have joined."""
    for node in nodes:
        node.terminate()
    for node in nodes:
        await node.wait()


@contextlib.contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Freeze processes."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
