"""Slices on a node: what begins, what is given back, what the store has afterwards, and what ends the generators."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstay.bundles import Bundle, BundleClient, collect_bundle, installed_digest, publish_bundle
from mainstay.lifecycle import Move
from mainstay.load.engine.messages import StopRun
from mainstay.load.fleet import FleetSettings
from mainstay.load.fleet.messages import CollectEnd, CommandRefused, PingSlice, SliceBeat, SliceEnd
from mainstay.load.fleet.slice_handler import SliceDone
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.run_spec import RunOrder
from mainstay.load.sources import Source
from mainstay.load.stats.model import StepStats, Window
from mainstay.load.target import TargetServer
from mainstay.testing import StoreFaults
from mainstay.worker import engine_session
from tests.load.fleet.slice_nodes import OURS, SliceNode, SliceWorld, planned, prepared, slice_node, slice_world
from tests.load.trials import GET, written
from tests.worker.crews import ROOT, alive


async def published(world: SliceWorld, text: str = "RATE = 1\n") -> str:
    root = world.folder / "program"
    root.mkdir(exist_ok=True)
    (root / "rates.py").write_text(text)
    bundle: Bundle = collect_bundle("rates:RATE", root)
    operator = BundleClient(world.network.client("ann"), role="operator", name="ann", **OURS)
    return (await publish_bundle(operator, bundle)).digest


async def loaded(world: SliceWorld, node: SliceNode, number: int = 0, **more: Any) -> str:
    """A slice under load."""
    unit = await world.placed(node, number, **more)
    leader = world.commander(number)
    await leader.prepare()
    await leader.go()
    return unit


async def test_a_slice_serves_its_leader_until_it_is_released(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        unit = await loaded(world, node)
        leader = world.commander(0)
        await leader.ask(StopRun(hurry=False))
        await leader.ask(CollectEnd(go=1))
        await leader.release()

        row = await world.until(unit, "succeeded")

        assert msgspec.msgpack.decode(row.result or b"", type=SliceDone) == SliceDone(node="n1", gos=1)
        assert node.runners[0].asked == ["prepared", "go", "ended"]
        assert node.cores.held == 0


async def test_the_start_is_stored_at_go_and_not_before(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        unit = await world.placed(node)
        leader = world.commander(0)
        await leader.prepare()
        await asyncio.sleep(0.3)  # heartbeats
        assert (await world.row(unit)).started_ms is None

        await leader.go()

        async with asyncio.timeout(5):
            while (await world.row(unit)).started_ms is None:
                await asyncio.sleep(0.01)


async def test_the_end_of_a_go_is_stored_while_the_slice_goes_on(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        unit = await loaded(world, node)
        await world.commander(0).ask(StopRun(hurry=False))

        async with asyncio.timeout(5):
            while (row := await world.row(unit)).checkpoint is None:
                await asyncio.sleep(0.01)

        end = msgspec.msgpack.decode(row.checkpoint, type=SliceEnd)
        assert (row.status, end.go, len(end.reports)) == ("running", 1, 1)


async def test_an_end_is_kept_while_the_store_is_away_and_comes_before_that_of_the_slice(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        unit = await loaded(world, node)
        leader = world.commander(0)
        node.link.faults = StoreFaults(unavailable=True)
        await leader.ask(StopRun(hurry=False))
        await leader.release()
        await asyncio.sleep(0.5)
        assert (await world.row(unit)).status == "running"

        node.link.faults = StoreFaults()

        row = await world.until(unit, "succeeded")
        assert row.checkpoint is not None
        assert msgspec.msgpack.decode(row.checkpoint, type=SliceEnd).go == 1


async def test_an_end_that_is_too_large_is_stored_without_its_sums(tmp_path: Path) -> None:
    steps = [StepStats(workflow="Shop", step=f"step {number}") for number in range(20)]
    async with slice_world(tmp_path) as world, slice_node(world, payload_limit=200) as node:
        unit = await loaded(world, node)
        node.runners[0].on_window(Window(bucket=1, steps=steps))
        await world.commander(0).ask(StopRun(hurry=False))
        await world.commander(0).release()

        row = await world.until(unit, "succeeded")

        end = msgspec.msgpack.decode(row.checkpoint or b"", type=SliceEnd)
        assert (end.windows, end.total) == (1, None)


async def test_a_slice_under_load_that_is_released_as_lost_runs_again(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        unit = await loaded(world, node)
        leader = world.commander(0)
        await leader.release(lost="generator 0 ended with signal 9")

        row = await world.until(unit, "pending", "failed")

        assert row.error is not None
        assert (row.error.code, row.error.retryable, row.failures) == ("slice_lost", True, 1)
        assert "signal 9" in row.error.message


async def test_a_slice_that_only_prepared_is_given_back_if_no_leader_is_heard(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        node.handler.settings = FleetSettings(ready_s=0.3)
        unit = await world.placed(node)

        row = await world.until(unit, "running")
        row = await world.until(unit, "pending")

        assert (row.reason, row.releases, row.failures) == ("no leader was heard for 0.3 s", 1, 0)
        assert node.cores.held == 0


# cores ----------------------------------------------------------------------------------------------


async def test_a_slice_that_a_node_has_and_does_not_know_is_given_back_and_placed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_session, "_AUDIT_S", 0.2)
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        unit = await world.slice()
        claim = {"token": 1, "session": node.engine.session.id, "claimed_ms": world.clock.now_ms()}
        promised = (
            Move(to="dispatched", reason="assigned", fields=claim),
            Move(to="running", reason="confirmed", fields={"started_ms": world.clock.now_ms()}),
        )
        await world.move(unit, *promised)

        await world.until(unit, "pending")
        await world.assign(unit, node)

        assert (await world.until(unit, "running")).token == 2
        await world.commander(0, token=2).prepare()
        assert node.runners[0].asked == ["prepared"]


async def test_slices_run_at_once_while_there_are_cores_and_another_is_given_back(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world, cores=3) as node:
        first = await world.placed(node, 0, cores=2)
        second = await world.placed(node, 1, cores=1)
        for unit in (first, second):
            await world.until(unit, "running")
        third = await world.placed(node, 2, cores=1)

        row = await world.until(third, "pending")

        assert row.reason == "it needs 1 core; 0 of 3 on this node are free"
        assert [(await world.row(unit)).status for unit in (first, second)] == ["running", "running"]


async def test_cores_are_free_again_when_the_processes_of_a_slice_have_ended(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world, cores=2) as node:
        first = await world.placed(node, 0, cores=2)
        await world.commander(0).prepare()
        await world.commander(0).release()
        await world.until(first, "succeeded")

        second = await world.placed(node, 1, cores=2)

        await world.commander(1).prepare()
        assert (await world.row(second)).status == "running"


async def test_a_worker_that_has_not_joined_a_cluster_gives_slices_back(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(node.remote), "caller", None)
            unit = await world.placed(node)
            row = await world.until(unit, "pending")

        assert "has not joined a cluster" in (row.reason or "")


# code -----------------------------------------------------------------------------------------------


async def test_the_generators_of_a_slice_have_the_code_of_its_bundle(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        digest = await published(world)
        await world.placed(node, code=digest)
        await world.commander(0).prepare()

        [folder] = node.folders

        assert folder == tmp_path / "cache" / "bundles" / digest
        assert (folder / "rates.py").read_text() == "RATE = 1\n"


async def test_two_nodes_of_a_machine_share_their_bundles(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as one, slice_node(world, "n2") as other:
        digest = await published(world)
        await world.placed(one, 0, code=digest)
        await world.placed(other, 1, code=digest)
        await world.commander(0).prepare()
        await world.commander(1, node="n2").prepare()

        assert one.folders == other.folders


async def test_a_slice_whose_bundle_is_not_published_is_given_back(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        unit = await world.placed(node, code="ab" * 32)

        row = await world.until(unit, "pending")

        assert (row.reason or "").startswith(f"bundle {'ab' * 32} cannot be used: ")
        assert "publish the bundle again" in (row.reason or "")
        assert node.cores.held == 0


async def test_a_module_of_another_version_is_refused_before_any_load(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        ours = installed_digest("json")
        unit = await world.placed(node, modules={"json": "cd" * 32})

        row = await world.until(unit, "pending")

        assert (row.reason or "").startswith(
            f"module json has the digest {ours[:12]} on this node, {'cd' * 6} where the run was planned"
        )
        assert not node.runners


async def test_a_module_that_is_missing_is_refused_by_name(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        unit = await world.placed(node, modules={"no_such_shop": "cd" * 32})

        row = await world.until(unit, "pending")

        assert (row.reason or "").startswith("module no_such_shop cannot be used here: there is no module")


async def test_a_module_of_the_same_version_is_used(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        await world.placed(node, modules={"json": installed_digest("json")})
        await world.commander(0).prepare()

        assert node.folders == [None]


# what ends a slice ----------------------------------------------------------------------------------


async def test_a_slice_that_is_cancelled_ends_its_generators_within_seconds(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        unit = await loaded(world, node)

        await world.client.operations.force(unit, "cancelled", actor="ann", reason="a test")

        async with asyncio.timeout(5):
            while "ended" not in node.runners[0].asked:
                await asyncio.sleep(0.01)
        assert (await world.row(unit)).status == "cancelled"


async def test_a_slice_that_was_given_to_another_node_ends_here(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as one, slice_node(world, "n2") as other:
        unit = await loaded(world, one)
        gone = {"session": None, "claimed_ms": None, "started_ms": None, "expires_ms": None}
        await world.move(unit, Move(to="timed_out", reason="its node was lost", fields=gone))
        await world.move(unit, Move(to="pending", reason="again"))
        await world.assign(unit, other)

        async with asyncio.timeout(10):
            while "ended" not in one.runners[0].asked:
                await asyncio.sleep(0.01)
        await world.until(unit, "running")
        await world.commander(0, node="n2", token=2).prepare()
        assert other.runners[0].asked == ["prepared"]


async def test_generators_that_do_not_end_are_killed(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        unit = await loaded(world, node)
        node.runners[0].deaf = True

        await world.client.operations.force(unit, "cancelled", actor="ann", reason="a test")

        async with asyncio.timeout(5):
            while "ended" not in node.runners[0].asked:
                await asyncio.sleep(0.01)
        assert "killed" in node.runners[0].asked


async def test_a_slice_runs_on_while_its_node_drains_and_is_given_back_at_the_end(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        unit = await loaded(world, node)
        node.engine.drain(1.0)
        await asyncio.sleep(0.5)
        assert isinstance(await world.commander(0).ask(PingSlice()), SliceBeat)
        assert (await world.row(unit)).status == "running"

        await node.engine.stopped.wait()

        row = await world.row(unit)
        assert (row.status, row.reason) == ("pending", "its worker stopped")
        assert node.runners[0].asked[-1] == "ended"


async def test_an_isolated_node_stops_its_slices(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        await loaded(world, node)

        node.engine.isolate(2.0)

        async with asyncio.timeout(5):
            await node.engine.stopped.wait()
        assert node.runners[0].asked[-1] == "ended"


async def test_a_slice_stops_its_load_when_its_node_has_lost_its_session(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world) as node:
        unit = await loaded(world, node)

        await world.store.close_session(node.engine.session.id)

        async with asyncio.timeout(10):
            while "ended" not in node.runners[0].asked:
                await asyncio.sleep(0.01)
        assert (await world.row(unit)).session is None or node.cores.held == 0


# real generators ------------------------------------------------------------------------------------


async def bundled(world: SliceWorld, target: TargetServer, **options: Any) -> tuple[str, RunOrder]:
    """A test that needs another module of its bundle, published; and its plan, as the submitter sends it."""
    root = world.folder / "shop"
    root.mkdir()
    (root / "pages_of_the_bundle.py").write_text("PATH = '/?page=1'\n")
    source = GET.replace('"/"', "PATH")
    test = written(root, "from pages_of_the_bundle import PATH\n" + source)
    bundle = collect_bundle("shop:Shop", root)
    operator = BundleClient(world.network.client("ann"), role="operator", name="ann", **OURS)
    digest = (await publish_bundle(operator, bundle)).digest
    order = PlannedRun(test, LoadOptions(base_url=target.url, vus=2, processes=2, **options)).order()
    return digest, msgspec.structs.replace(order, source=Source(file="shop.py"))


async def test_real_generators_run_the_bundle_and_their_counts_are_those_of_the_target(tmp_path: Path) -> None:
    async with TargetServer() as target, slice_world(tmp_path) as world, slice_node(world, scripted=False) as node:
        digest, order = await bundled(world, target, duration="1s")
        unit = await world.placed(node, cores=2, code=digest)
        leader = world.commander(0)
        await leader.prepare(order=order, processes=2)
        await leader.go()
        await leader.ask(CollectEnd(go=1))
        await leader.release()
        row = await world.until(unit, "succeeded")

        stored = msgspec.msgpack.decode(row.checkpoint or b"", type=SliceEnd)
        assert stored.total is not None
        [step] = stored.total.steps
        assert step.ok is not None
        assert step.ok.count == target.counts().completed > 0


async def test_real_generators_have_stopped_seconds_after_a_cancel(tmp_path: Path) -> None:
    async with TargetServer() as target, slice_world(tmp_path) as world, slice_node(world, scripted=False) as node:
        digest, order = await bundled(world, target, duration="60s")
        unit = await world.placed(node, cores=2, code=digest)
        leader = world.commander(0)
        await leader.prepare(order=order, processes=2)
        await leader.go()
        async with asyncio.timeout(10):
            while not target.counts().completed:
                await asyncio.sleep(0.01)

        await world.client.operations.force(unit, "cancelled", actor="ann", reason="a test")

        async with asyncio.timeout(5):
            while node.cores.held:
                await asyncio.sleep(0.01)
        sent = target.counts().begun
        await asyncio.sleep(0.3)
        assert target.counts().begun == sent


async def test_a_test_without_a_bundle_that_is_a_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with slice_world(tmp_path) as world, slice_node(world, scripted=False) as node:
        await world.placed(node)

        refused = await world.commander(0).ask(prepared(planned(tmp_path)))

        assert isinstance(refused, CommandRefused)
        assert "is not a file of a bundle" in refused.rule


async def test_the_generators_of_a_killed_node_engine_end_with_it(tmp_path: Path) -> None:
    program = (sys.executable, "-m", "tests.load.fleet.slice_program", str(tmp_path))
    engine = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    assert engine.stdout is not None
    generators = [int(word) for word in (await engine.stdout.readline()).split()]
    assert len(generators) == 2
    assert all(alive(pid) for pid in generators)

    engine.kill()

    async with asyncio.timeout(5):
        await engine.wait()
        while any(alive(pid) for pid in generators):
            await asyncio.sleep(0.01)
