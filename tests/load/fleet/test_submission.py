"""A load test on its way to the nodes: what is sent and stored, and what is refused before."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from mainstay import App
from mainstay.bundles import BundleLimits, installed_digest
from mainstay.clock import seconds
from mainstay.control import InsertResult, JobRequest
from mainstay.errors import DurabilityUnknown, InvalidInput, KeyConflict, PayloadTooLarge, StoreUnavailable
from mainstay.load import FleetDemand, LoadOptions, LoadTest
from mainstay.load.fleet.code import load_code
from mainstay.load.fleet.demand import core_demand
from mainstay.load.fleet.spec import FleetOptions
from mainstay.load.handler import limits_on_nodes, options_of
from mainstay.load.planned_run import PlannedRun
from mainstay.load.sources import Source
from mainstay.model import LEAD_QUEUE, Job
from mainstay.stores import Durability, NewJob, Query
from tests.load.fleet.small_cluster import SmallCluster, small_cluster
from tests.load.trials import GET, HEAD, written

AMOUNT = {"vus": 20, "duration": "10s", "base_url": "http://127.0.0.1:1"}


def planned_of(test: LoadTest, **options) -> PlannedRun:
    return PlannedRun(test, LoadOptions(**{**AMOUNT, **options}))


def stored_options(job: Job) -> FleetOptions:
    return msgspec.msgpack.decode(job.payload, type=FleetOptions)


async def submitted(cluster: SmallCluster, test: LoadTest, demand: FleetDemand, **options) -> Job:
    app = App("memory:")
    app.load(test)
    with app.client.connection.instead(cluster.control):
        handle = await app.submit_load(test.name, LoadOptions(**AMOUNT), nodes=demand, **options)
    return await cluster.behind.jobs.get(handle.id)


async def test_a_test_is_sent_as_a_bundle_and_its_job_waits_for_a_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.py").write_text("RATE = 1")
    (tmp_path / "users.csv").write_text("name\nann\n")
    (tmp_path / "other.py").write_text("")
    test = written(tmp_path, f"import prices\n{GET}    data = Feed.csv('users.csv')\n")
    async with small_cluster() as cluster:
        await cluster.join("n1")
        await cluster.join("n2")

        job = await submitted(cluster, test, FleetDemand(2, labels={}, on_loss="continue"))

        assert (job.kind, job.queue, job.status, job.name) == ("load", LEAD_QUEUE, "pending", "shop")
        options = stored_options(job)
        assert (options.demand.nodes, options.demand.processes, options.demand.most) == (2, None, 20)
        assert (options.on_loss, options.vus, options_of(job.payload).vus) == ("continue", 20, 20)
        assert options.spec.order.source == Source(file="shop.py")
        assert job.options.start_by_ms is None
        # the drain, a node that does not confirm the stop, the release, and what every run takes
        assert job.options.grace_s == 30 + 15 + 10 + 15
        assert options.spec.plan.workflows["Shop"].most_users == 20
        listing = await cluster.bundles.listing()
        assert [each.digest for each in listing.bundles] == [options.code]
        manifest = await cluster.bundles.manifest(options.code)
        assert [file.path for file in manifest.files] == ["prices.py", "shop.py", "users.csv"]


async def test_an_installed_test_is_not_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "installed_shop.py").write_text(HEAD + GET)
    monkeypatch.syspath_prepend(str(folder))
    installed = import_module("installed_shop")

    async with small_cluster(keeps_bundles=False) as cluster:
        await cluster.join("n1")

        job = await submitted(cluster, LoadTest("shop", [installed.Shop]), FleetDemand(1))

        options = stored_options(job)
        assert options.modules == {"installed_shop": installed_digest("installed_shop")}
        assert (options.code, options.spec.order.source) == ("", Source(classes={"Shop": "installed_shop:Shop"}))
    del sys.modules["installed_shop"]


async def test_classes_of_a_package_are_sent_from_the_folder_they_are_imported_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "src" / "sent_shop"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "tests.py").write_text(HEAD + "from . import prices\n" + GET)
    (package / "prices.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    module = import_module("sent_shop.tests")

    async with small_cluster() as cluster:
        await cluster.join("n1")

        options = stored_options(await submitted(cluster, LoadTest("shop", [module.Shop]), FleetDemand(1)))

        manifest = await cluster.bundles.manifest(options.code)
        assert [file.path for file in manifest.files] == [
            "sent_shop/__init__.py", "sent_shop/prices.py", "sent_shop/tests.py",
        ]  # fmt: skip
        assert options.spec.order.source == Source(classes={"Shop": "sent_shop.tests:Shop"})


async def test_two_submits_with_one_key_are_one_job_and_another_test_is_a_conflict(tmp_path: Path) -> None:
    test = written(tmp_path, GET)
    async with small_cluster() as cluster:
        await cluster.join("n1")

        first = await submitted(cluster, test, FleetDemand(1, wait="5m"), key="nightly")
        await cluster.sleep(10)
        again = await submitted(cluster, test, FleetDemand(1, wait="5m"), key="nightly")

        assert again.id == first.id
        assert first.options.start_by_ms == first.created_ms + 300_000
        with pytest.raises(KeyConflict):
            await submitted(cluster, test, FleetDemand(1, on_loss="fail"), key="nightly")


async def test_a_submit_with_the_key_of_a_run_is_that_run_although_its_nodes_have_gone(tmp_path: Path) -> None:
    """The answer to the first one was lost."""
    test = written(tmp_path, GET)
    async with small_cluster() as cluster:
        await cluster.join("n1")
        first = await submitted(cluster, test, FleetDemand(1), key="nightly")
        for session in await cluster.behind.store.sessions():
            if session.node:
                await cluster.behind.store.close_session(session.id)

        assert (await submitted(cluster, test, FleetDemand(1), key="nightly")).id == first.id
        with pytest.raises(InvalidInput, match="no node runs slices"):
            await submitted(cluster, test, FleetDemand(1), key="another")


async def test_the_order_of_labels_makes_no_other_run_of_a_key(tmp_path: Path) -> None:
    test = written(tmp_path, GET)
    async with small_cluster() as cluster:
        await cluster.join("n1", labels={"zone": "a", "disk": "ssd"})
        first = await submitted(cluster, test, FleetDemand(1, labels={"zone": "a", "disk": "ssd"}), key="nightly")
        again = await submitted(cluster, test, FleetDemand(1, labels={"disk": "ssd", "zone": "a"}), key="nightly")
        assert again.id == first.id


async def test_the_wait_for_cores_of_a_delayed_run_begins_when_it_is_due(tmp_path: Path) -> None:
    test = written(tmp_path, GET)
    async with small_cluster() as cluster:
        await cluster.join("n1")
        job = await submitted(cluster, test, FleetDemand(1, wait="5m"), delay="1h")
        assert job.options.start_by_ms == job.created_ms + 3_600_000 + 300_000


async def test_a_submit_whose_answers_are_lost_is_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    async with small_cluster() as cluster:
        tries = losing_answers(cluster, monkeypatch, count=3)

        found = await cluster.submitter().insert(JobRequest("shop", {}, {"key": "nightly"}))

        assert [(each.id, each.created) for each in tries] == [(found.id, True)] * 4
        assert len((await cluster.behind.store.find(Query())).jobs) == 1


@pytest.mark.parametrize("is_readable", [True, False])
async def test_a_submit_whose_confirmations_are_held_back_may_have_been_submitted(
    monkeypatch: pytest.MonkeyPatch, is_readable: bool
) -> None:
    async with small_cluster() as cluster:
        losing_answers(cluster, monkeypatch, count=4)
        if not is_readable:
            monkeypatch.setattr(cluster.control.store, "get", unavailable)

        with pytest.raises(DurabilityUnknown) as unknown:
            await cluster.submitter().insert(JobRequest("shop", {}, {"key": "nightly"}))

        [job] = (await cluster.behind.store.find(Query())).jobs
        assert (unknown.value.id, unknown.value.reached) == (job.id, "local" if is_readable else "")
        assert str(unknown.value).startswith(f"job {job.id} may have been submitted: ")
        assert "with the same key" in str(unknown.value)
        assert "failed" not in str(unknown.value)
        again = await cluster.submitter().insert(JobRequest("shop", {}, {"key": "nightly"}))
        assert (again.id, again.created) == (job.id, False)


def losing_answers(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, *, count: int) -> list[InsertResult]:
    """The results of inserts, of which the first ones do not arrive."""
    tries: list[InsertResult] = []
    insert = cluster.control.jobs.insert

    async def lose(jobs: Sequence[NewJob], durability: Durability | None) -> list[InsertResult]:
        tries.extend(await insert(jobs, durability))
        if len(tries) <= count:
            raise StoreUnavailable("no answer")
        return tries[-1:]

    monkeypatch.setattr(cluster.control.jobs, "insert", lose)
    return tries


async def unavailable(*_: object) -> None:
    raise StoreUnavailable("no answer")


@pytest.mark.parametrize(
    ("demand", "error"),
    [
        (FleetDemand(3), "nodes: it needs 3 nodes, and there are 2: n1, n2"),
        (FleetDemand(cores=9), "cores: it needs 9 cores, and the nodes have 8"),
        (FleetDemand(labels={"zone": "moon"}), "nodes: no node has zone=moon; the nodes have: zone=eu"),
        (FleetDemand(labels={"zone": " "}), "labels: 'zone'=' ' is not a label"),
        (FleetDemand(share="most"), "share: 'most' is not one of low, normal"),  # type: ignore[arg-type]
        (FleetDemand(on_loss="ignore"), "on_loss: 'ignore' is not one of replace"),  # type: ignore[arg-type]
        (FleetDemand(0), "nodes: 0 is out of range"),
        (FleetDemand(21), "nodes: 21 are more than the 20 users of this test"),
        (FleetDemand(cores=21), "cores: 21 are more than the 20 users of this test"),
        (FleetDemand(2, cores=1), "cores: 1 core cannot be spread over 2 nodes"),
        (FleetDemand(cores=2, share="high"), "cores: 2 cores and share='high' are both given"),
        (FleetDemand(1, wait="soon"), "wait: "),
        (FleetDemand(1, wait="0s"), "wait: '0s' must be longer than zero"),
        (FleetDemand(1, data=("gone.csv",)), "data: there is no file"),
    ],
)
async def test_a_demand_that_cannot_be_met_is_refused_by_field_and_nothing_is_sent(
    tmp_path: Path, demand: FleetDemand, error: str
) -> None:
    test = written(tmp_path, GET)
    async with small_cluster() as cluster:
        for node in ("n1", "n2"):
            await cluster.join(node, labels={"zone": "eu"})

        with pytest.raises(InvalidInput) as refused:
            await submitted(cluster, test, demand)

        assert str(refused.value).startswith(error)
        assert (await cluster.bundles.listing()).bundles == []
        assert (await cluster.behind.store.find(Query())).jobs == []


async def test_options_of_one_machine_and_levels_that_cannot_be_had_are_refused(tmp_path: Path) -> None:
    test = written(tmp_path, GET)
    async with small_cluster() as cluster:
        await cluster.join("n1")

        for options, error in (
            ({"queue": "mail"}, "queue: a run on nodes waits in a queue of its own"),
            ({"queue": LEAD_QUEUE}, "queue: a run on nodes waits in a queue of its own"),
            ({"durability": "applied"}, "durability: "),
            ({"retrys": 1}, "retrys: unknown option"),
        ):
            with pytest.raises(InvalidInput, match=error):
                await submitted(cluster, test, FleetDemand(1), **options)
        with pytest.raises(InvalidInput, match="processes: is for one machine"):
            core_demand(FleetDemand(1), planned_of(test, processes=2))
        assert (await cluster.bundles.listing()).bundles == []


async def test_users_cannot_name_the_queue_of_the_leaders() -> None:
    with pytest.raises(InvalidInput, match="queue: '@lead' may only contain"):
        App("memory:").client.reader.read({"queue": LEAD_QUEUE, "kind": "load"})


async def test_an_app_with_a_codec_is_refused(tmp_path: Path) -> None:
    class Zip:
        encode = staticmethod(zlib.compress)
        decode = staticmethod(zlib.decompress)

    test = written(tmp_path, GET)
    async with small_cluster() as cluster:
        app = App("memory:", codec=Zip())
        app.load(test)
        with app.client.connection.instead(cluster.control), pytest.raises(InvalidInput, match="codec: managers lead"):
            await app.submit_load(test, nodes=1)


async def test_a_store_that_is_not_behind_managers_is_refused(tmp_path: Path) -> None:
    app = App("memory:")
    app.load(written(tmp_path, GET))
    async with app:
        with pytest.raises(InvalidInput, match="nodes: needs a cluster, and this store is not"):
            await app.submit_load("shop", nodes=1)


async def test_too_large_a_bundle_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "big.py").write_text("#" * 2000)
    test = written(tmp_path, f"import big\n{GET}")
    async with small_cluster(limits=BundleLimits(code_bytes=1000)) as cluster:
        await cluster.join("n1")

        with pytest.raises(PayloadTooLarge, match=r"the code of shop has \d+ bytes; at most 1000 are allowed"):
            await submitted(cluster, test, FleetDemand(1))
        assert (await cluster.bundles.listing()).bundles == []


async def test_managers_without_storage_for_bundles_say_how_to_get_it(tmp_path: Path) -> None:
    async with small_cluster(keeps_bundles=False) as cluster:
        await cluster.join("n1")

        with pytest.raises(InvalidInput, match="keep no bundles; start all of them with the same --blobs URL"):
            await submitted(cluster, written(tmp_path, GET), FleetDemand(1))


async def test_a_submit_waits_for_nodes_that_are_starting_and_says_what_is_missing(tmp_path: Path) -> None:
    planned = planned_of(written(tmp_path, GET))
    async with small_cluster() as cluster:
        begun_ms = cluster.clock.now_ms()

        async def sleep(seconds: float) -> None:
            await cluster.sleep(seconds)
            await cluster.join(f"n{len(await cluster.behind.store.sessions()) + 1}")

        request = await cluster.submitter(sleep=sleep).prepare(planned, FleetDemand(2, wait="5m"))

        assert cluster.notes == [
            "waiting for nodes: no node runs slices of load tests",
            "waiting for nodes: it needs 2 nodes, and there are 1: n1",
        ]
        assert request.wait_s == 300 - (cluster.clock.now_ms() - begun_ms) / 1000


async def test_nodes_that_do_not_come_in_time_are_named(tmp_path: Path) -> None:
    planned = planned_of(written(tmp_path, GET))
    async with small_cluster() as cluster:
        with pytest.raises(InvalidInput, match="nodes: no node runs slices of load tests after 1m"):
            await cluster.submitter().prepare(planned, FleetDemand(2, wait="1m"))
        with pytest.raises(InvalidInput, match="if nodes are still starting, add a wait"):
            await cluster.submitter().prepare(planned, FleetDemand(2))


def test_data_that_nodes_would_read_elsewhere_is_refused_with_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, here = tmp_path / "tests", tmp_path / "here"
    inside.mkdir()
    here.mkdir()
    (here / "users.csv").write_text("name\nann")
    monkeypatch.chdir(here)
    test = written(inside, f"{GET}    data = Feed.csv('users.csv')\n")

    with pytest.raises(InvalidInput, match=r"Shop\.data: users\.csv is read from the current folder"):
        load_code(planned_of(test), FleetDemand(1))

    kept = written(inside, f"{GET}    data = Feed.csv({str(here / 'users.csv')!r})\n", name="kept.py")
    code = load_code(planned_of(kept), FleetDemand(1))
    assert code.notes == [
        f"Shop.data: {here / 'users.csv'} is not below {inside} and is not sent; every node needs it at the same path"
    ]


def test_a_private_key_is_sent_only_if_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.key").write_text("secret")
    planned = planned_of(written(tmp_path, GET), key="own.key")

    with pytest.raises(InvalidInput, match=r"key: own\.key is read on the nodes"):
        load_code(planned, FleetDemand(1))
    assert load_code(planned, FleetDemand(1, data=("own.key",))).bundle is not None


@pytest.mark.parametrize(
    ("options", "timeout"),
    [
        ({"duration": "10m", "vus": 5, "drain": "30s"}, "1530s"),
        ({"iterations": 1000, "vus": 5}, "3600s"),
        ({"iterations": 1000, "vus": 5, "duration": "3h", "drain": "0s"}, "11700s"),
    ],
)
def test_a_run_on_nodes_has_always_an_end(tmp_path: Path, options: dict[str, object], timeout: str) -> None:
    planned = PlannedRun(written(tmp_path, GET), LoadOptions(**options))

    assert seconds(limits_on_nodes(planned.plan)["timeout"], field="timeout") == seconds(timeout, field="timeout")
