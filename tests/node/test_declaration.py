"""Declaring and submitting node jobs: what is refused, by field, and what is stored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainstay import App, LeaderRun, Node, NodeJob, NodeResult
from mainstay.errors import InvalidInput, UnknownOption
from mainstay.model import PLACE_QUEUE
from mainstay.node import NodePolicy, NodeSpec
from mainstay.node.spec import spec_of
from mainstay.stores import JobStore, open_store
from mainstay.task import Sealer
from mainstay.testing import VirtualClock
from tests.node.fleet import FakeNode, submit


class Report(msgspec.Struct):
    rows: int


class Compact:
    def local(self, node: Node, table: str, limit: int = 10) -> Report:
        return Report(limit + len(table) + len(node.name))

    def leader(self, results: list[NodeResult], table: str, limit: int = 10) -> dict[str, int]:
        return {table: len(results) + limit}


def declared(owner: Any = Compact, **options: Any) -> NodeJob:
    return App("memory:").node_job(name="compact", **options)(owner)


def refused(owner: Any = Compact, **options: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as refusal:
        declared(owner, **options)
    return refusal.value


# the class ------------------------------------------------------------------------------------------


def test_a_class_has_the_name_of_its_module_and_itself_unless_it_is_given() -> None:
    assert App("memory:").node_job()(Compact).name == f"{__name__}.Compact"
    assert declared().name == "compact"


def test_calling_a_node_job_makes_an_object_for_tests() -> None:
    node = Node(name="n1", job_id="j", token=1, members=("n1",))
    assert declared()().local(node, "events") == Report(18)


def test_a_class_with_neither_method_is_refused() -> None:
    class Nothing:
        pass

    assert "neither of the methods `local` and `leader`" in refused(Nothing).rule


def test_a_name_without_its_keyword_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"'compact' is not a class; write @app.node_job, or"):
        App("memory:").node_job("compact")  # type: ignore[call-overload]  # refused for this


def test_a_function_is_refused() -> None:
    assert refused(lambda: None).field == "node_job"


class NoNode:
    def local(self, table: str) -> None: ...


class NoAnnotation:
    def local(self, node, table: str) -> None: ...  # type: ignore[no-untyped-def]  # refused for this


class WrongNode:
    def local(self, node: str) -> None: ...


class WrongResults:
    def leader(self, results: list[str]) -> None: ...


class NoResults:
    def leader(self, run: LeaderRun) -> None: ...


class RunInLocal:
    def local(self, node: Node, run: LeaderRun) -> None: ...


class TwoRuns:
    def leader(self, results: list[NodeResult], run: LeaderRun, again: LeaderRun) -> None: ...


class OnlyLeaderTakes:
    def local(self, node: Node) -> None: ...
    def leader(self, results: list[NodeResult], table: str) -> None: ...


class OnlyLocalTakes:
    def local(self, node: Node, table: str) -> None: ...
    def leader(self, results: list[NodeResult]) -> None: ...


class OtherType:
    def local(self, node: Node, table: str) -> None: ...
    def leader(self, results: list[NodeResult], table: int) -> None: ...


class OtherDefault:
    def local(self, node: Node, table: str = "a") -> None: ...
    def leader(self, results: list[NodeResult], table: str = "b") -> None: ...


class Variable:
    def local(self, node: Node, *tables: str) -> None: ...


class Yields:
    def local(self, node: Node) -> Any:
        yield 1


class Static:
    @staticmethod
    def local(node: Node) -> None: ...


class NeedsArguments:
    def __init__(self, table: str) -> None: ...
    def local(self, node: Node) -> None: ...


class NotStorable:
    def local(self, node: Node, table: App) -> None: ...


@pytest.mark.parametrize(
    ("owner", "field"),
    [
        (NoNode, "compact.local.node"),
        (NoAnnotation, "compact.local.node"),
        (WrongNode, "compact.local.node"),
        (WrongResults, "compact.leader.results"),
        (NoResults, "compact.leader.results"),
        (RunInLocal, "compact.local.run"),
        (TwoRuns, "compact.leader.again"),
        (OnlyLeaderTakes, "compact.local.table"),
        (OnlyLocalTakes, "compact.leader.table"),
        (OtherType, "compact.leader.table"),
        (OtherDefault, "compact.leader.table"),
        (Variable, "compact.local.tables"),
        (Yields, "compact.local"),
        (Static, "compact.local"),
        (NeedsArguments, "compact.table"),
        (NotStorable, "compact.table"),
    ],
)
def test_a_class_that_a_worker_could_not_run_is_refused_by_field(owner: Any, field: str) -> None:
    assert refused(owner).field == field


def test_a_name_is_declared_once() -> None:
    app = App("memory:")
    app.node_job(name="compact")(Compact)
    with pytest.raises(InvalidInput, match="is the name of another node job"):
        app.node_job(name="compact")(Compact)


# options --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"quorum": 0}, "quorum"),
        ({"quorum": -1}, "quorum"),
        ({"quorum": "most"}, "quorum"),
        ({"quorum": True}, "quorum"),
        ({"quorum_wait": "-1s"}, "quorum_wait"),
        ({"quorum_wait": 5}, "quorum_wait"),
        ({"stragglers": "-60s"}, "stragglers"),
        ({"on_no_quorum": "hope"}, "on_no_quorum"),
        ({"require": "some"}, "require"),
        ({"late_nodes": "yes"}, "late_nodes"),
        ({"labels": ["ssd"]}, "labels"),
        ({"labels": {"disk": 7}}, "labels.disk"),
        ({"labels": {"": "x"}}, "labels"),
        ({"timeout": "-5s"}, "timeout"),
        ({"deadline": "-5s"}, "deadline"),
        ({"deadline": "0s"}, "deadline"),
        ({"retries": -1}, "retries"),
        ({"queue": "mail"}, "queue"),
        ({"concurrency_key": "k"}, "concurrency_key"),
        ({"delay": "5m"}, "delay"),
        ({"process": "yes"}, "process"),
        ({"policy": 7}, "policy"),
    ],
)
def test_a_wrong_option_is_refused_by_field(options: dict[str, Any], field: str) -> None:
    assert refused(**options).field == field


def test_an_unknown_option_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UnknownOption, match="quorum"):
        declared(quorom="all")


def test_options_about_nodes_are_refused_for_a_class_without_local() -> None:
    class LeaderOnly:
        def leader(self, results: list[NodeResult]) -> None: ...

    assert refused(LeaderOnly, quorum="all").field == "quorum"
    assert declared(LeaderOnly).phases == ("leader",)


def test_options_of_the_class_cannot_be_given_to_a_submit() -> None:
    with pytest.raises(InvalidInput, match="belongs to the job, not to one submit"):
        declared().options(process=True)  # type: ignore[call-arg]  # refused for this


# submit ---------------------------------------------------------------------------------------------


async def test_a_submitted_job_is_stored_in_the_reserved_queue_with_its_policy() -> None:
    job = declared(quorum="all", stragglers="5s", retries=2, timeout="1m", deadline="1h", labels={"disk": "ssd"})
    async with App("memory:"):
        handle = await job.options(tags=["nightly"], priority=3).submit("events", limit=3)
        row = await handle.job()
    spec = msgspec.msgpack.decode(row.payload, type=NodeSpec)
    assert (row.kind, row.queue, row.status, row.priority) == ("node", PLACE_QUEUE, "pending", 3)
    assert row.options.tags == ("nightly",)
    assert (row.options.run_timeout_s, row.options.retry.retries) == (3600.0, 0)
    assert (spec.plan.options.run_timeout_s, spec.plan.options.retry.retries) == (60.0, 2)
    assert spec.policy == NodePolicy(quorum="all", stragglers_s=5.0, labels={"disk": "ssd"})
    assert msgspec.msgpack.decode(spec.arguments) == {"table": "events", "limit": 3}
    await job.client.release()


async def test_arguments_that_do_not_fit_are_refused_by_field() -> None:
    job = declared()
    with pytest.raises(InvalidInput, match=r"compact\.table: expected str, got int"):
        await job.submit(table=7)
    with pytest.raises(InvalidInput, match="missing a required"):
        await job.submit()


async def test_the_same_unsettled_job_is_returned_for_a_unique_key() -> None:
    job = declared()
    first = await job.options(unique=True).submit("events")
    again = await job.options(unique=True).submit("events")
    other = await job.options(unique=True).submit("users")
    assert (first.id == again.id, again.created, first.id == other.id) == (True, False, False)
    await job.client.release()


@pytest.fixture
async def cluster() -> Any:
    store = await open_store("memory:", clock=VirtualClock())
    for name, labels in (("n1", {"disk": "ssd"}), ("n2", {"disk": "hdd", "zone": "a"})):
        await FakeNode(store, name).open(labels=labels)
    yield store
    await store.close()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"labels": {"disk": "tape"}}, "labels.disk"),
        ({"labels": {"disk": "ssd", "zone": "a"}}, "labels"),
        ({"quorum": 3}, "quorum"),
        ({"quorum": 2, "labels": {"zone": "a"}}, "quorum"),
    ],
)
async def test_a_job_that_the_active_nodes_cannot_run_is_refused_by_field(
    cluster: JobStore, options: dict[str, Any], field: str
) -> None:
    app = App("memory:")
    job = app.node_job(name="compact", **options)(Compact)
    with app.using(cluster):
        with pytest.raises(InvalidInput) as refusal:
            await job.submit("events")
        assert refusal.value.field == field
        assert (await job.options(delay="1h").submit("events")).created


async def test_without_any_node_a_job_waits() -> None:
    job = declared(quorum=5, labels={"disk": "tape"})
    handle = await job.submit("events")
    assert await handle.status() == "pending"
    await job.client.release()


class Reverse:
    """A codec that hides what it seals, otherwise each time."""

    def __init__(self) -> None:
        self._sealed = 0

    def encode(self, data: bytes) -> bytes:
        self._sealed += 1
        return data[::-1] + bytes([self._sealed])

    def decode(self, data: bytes) -> bytes:
        return data[-2::-1]


async def test_arguments_are_sealed_by_the_codec_and_the_policy_is_not() -> None:
    app = App("memory:", codec=Reverse())
    job = app.node_job(name="compact")(Compact)
    handle = await job.submit("a secret table")
    row = await handle.job()
    assert b"a secret table" not in row.payload
    assert msgspec.msgpack.decode(row.payload, type=NodeSpec).policy == NodePolicy()
    assert app.part("node").arguments("compact", row.payload) == {"table": "a secret table"}
    await app.close()


async def test_hooks_before_submit_see_the_arguments_and_add_options() -> None:
    app = App("memory:")
    seen: list[Any] = []

    @app.before_submit
    def hook(draft: Any) -> None:
        seen.append(dict(draft.arguments))
        draft.add_tags("traced")

    handle = await app.node_job(name="compact")(Compact).submit("events")
    assert (await handle.job()).options.tags == ("traced",)
    assert seen == [{"table": "events"}]
    await app.close()


async def test_a_schedule_submits_a_node_job() -> None:
    app = App("memory:")
    job = app.node_job(name="compact")(Compact)
    app.schedule("1h", name="hourly")(job.job("events"))
    with pytest.raises(InvalidInput, match=r"needs table; write app.schedule\(...\)\(compact.job\(...\)\)"):
        app.schedule("1h")(job)
    async with app:
        await app.sync_schedules()
        handle = await app.run_schedule("hourly")
        row = await handle.job()
    assert (row.kind, row.queue, row.name) == ("node", PLACE_QUEUE, "compact")


async def test_a_schedule_seals_the_arguments_of_a_node_job_and_not_its_policy() -> None:
    """Otherwise a leader without the codec could not place it, and one with it would copy the arguments into the units
    as clear text."""
    app = App("memory:", codec=Reverse())
    app.schedule("1h", name="hourly")(app.node_job(name="compact")(Compact).job("a secret table"))
    async with app:
        await app.sync_schedules()
        [first] = await app.control.store.schedules()
        await app.sync_schedules()
        [again] = await app.control.store.schedules()
        row = await (await app.run_schedule("hourly")).job()
    assert first.spec == again.spec
    assert b"a secret table" not in row.payload
    assert spec_of(row, Sealer(None)).policy == NodePolicy()
    assert app.part("node").arguments("compact", row.payload) == {"table": "a secret table"}


async def test_a_raw_submit_of_the_kind_cannot_choose_a_queue(cluster: JobStore) -> None:
    with pytest.raises(InvalidInput, match="have no queue of their own"):
        await submit(cluster, queue="mail")
