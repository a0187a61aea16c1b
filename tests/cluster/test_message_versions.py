"""Messages of a neighbouring version: fields that are not known are ignored, and missing ones are refused by name."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mainstay.bus import MemoryBusNetwork
from mainstay.cluster.cluster_service import ClusterClient, ClusterService
from mainstay.cluster.manager import Manager, ManagerOptions
from mainstay.cluster.managers import SUBJECT, ManagerDirectory
from mainstay.cluster.member_messages import (
    AskAnswer,
    AskArguments,
    ClosedMessage,
    EndedMessage,
    HeardMessage,
    MemberAnswer,
    MemberEnvelope,
    NodeEnd,
)
from mainstay.cluster.membership_events import HeardNode
from mainstay.cluster.status import ClusterStatus, JournalEntry, LeadInfo, ManagerInfo, NodeBeat, NodeInfo
from mainstay.errors import VersionSkew
from mainstay.stores.remote import MAINSTAY_VERSION, RemoteStore, StoreAnswer, StoreRequest, StoreService
from mainstay.testing import MemoryStore

BEAT = NodeBeat(node="n1", number=3, incarnation="a", sessions=("s",), labels={"zone": "a"}, cluster="shop")
END = NodeEnd(incarnation="a", how="its worker exited with code 0")
STATUS = ClusterStatus(
    cluster="shop",
    environment="default",
    at_ms=1,
    manager="m1",
    managers=[ManagerInfo(name="m1", version="1.2.0")],
    nodes=[NodeInfo(name="n1", state="active", since_ms=1, heard_ms=1, beat=BEAT)],
    leads=[LeadInfo(name="leader", manager="m1", session="s", epoch=1)],
    journal=[JournalEntry(at_ms=1, event="node_joined", about="n1", text="n1 joined")],
)
MESSAGES: list[msgspec.Struct] = [
    StoreRequest(v="1.2.0", c="shop", e="default", id="1"),
    StoreAnswer(m="m1", now=5),
    BEAT,
    END,
    ManagerInfo(name="m1", version="1.2.0"),
    MemberEnvelope(v="1.2.0", c="shop", e="default", id="1"),
    MemberAnswer(ok=True, m="m1"),
    HeardMessage(manager="m1", heard={"n1": HeardNode(incarnation="a", number=3, age_s=0.5)}),
    ClosedMessage(manager="m1", node="n1", sessions=("s",), reason="silent"),
    EndedMessage(manager="m1", node="n1", end=END),
    AskArguments(node="n1"),
    AskAnswer(incarnation="a"),
    STATUS,
]
BY_NAME = pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)


def grown(value: Any) -> Any:
    """As a later version sends it: with a field more in every structure."""
    if isinstance(value, msgspec.Struct):
        fields = {name: grown(getattr(value, name)) for name in value.__struct_fields__}
        return {**fields, "of_a_later_version": [1, {"x": 2}]}
    if isinstance(value, dict):
        return {key: grown(each) for key, each in value.items()}
    return [grown(each) for each in value] if isinstance(value, list | tuple) else value


def plain(message: msgspec.Struct) -> dict[str, Any]:
    """The fields, with the arguments as bytes: they are compared by what they contain."""
    fields = msgspec.structs.asdict(message)
    return {name: bytes(each) if isinstance(each, msgspec.Raw) else each for name, each in fields.items()}


@BY_NAME
def test_fields_of_a_later_version_are_ignored(message: msgspec.Struct) -> None:
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(grown(message)), type=type(message))
    assert plain(read) == plain(message)


@BY_NAME
def test_a_missing_field_is_refused_by_its_name(message: msgspec.Struct) -> None:
    required = [field.name for field in msgspec.structs.fields(message) if field.required]
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    for name in required:
        less = {key: value for key, value in sent.items() if key != name}
        with pytest.raises(msgspec.ValidationError, match=f"`{name}`"):
            msgspec.msgpack.decode(msgspec.msgpack.encode(less), type=type(message))


@pytest.mark.parametrize("kind", [StoreRequest, MemberEnvelope])
def test_no_request_can_leave_out_what_fences_it(kind: type[msgspec.Struct]) -> None:
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    assert required >= {"v", "c", "e"}


# versions that work together ----------------------------------------------------------------------------

#: the version of a caller of a manager with version 1.4 -> whether they work together
VERSIONS = {"1.4.9": True, "1.3.0": True, "1.5.0": True, "1.2.9": False, "1.6.0": False, "2.4.0": False}


@pytest.mark.parametrize(("version", "works"), VERSIONS.items())
async def test_a_node_of_a_neighbouring_version_reaches_the_store_and_others_are_refused(
    version: str, works: bool
) -> None:
    network, store = MemoryBusNetwork(), MemoryStore()
    service = StoreService(store, network.client("manager.m1"), manager="m1", cluster="shop", version="1.4.0")
    await service.start()
    node = RemoteStore(network.client("node.n1"), role="node", name="n1", cluster="shop", version=version)
    try:
        if works:
            await node.open()
        else:
            with pytest.raises(VersionSkew, match=rf"version {version} cannot work with version 1\.4\.0"):
                await node.open()
        assert service.refused["version"] == (not works)
    finally:
        await service.stop()
        await store.close()


class NothingToSee:
    async def status(self) -> ClusterStatus:
        return STATUS

    async def drain(self, node: str, by: str) -> bool:
        return False

    def peers(self) -> list[str]:
        return []

    def journal_entries(
        self, *, from_ms: int | None = None, until_ms: int | None = None, most: int = 50
    ) -> list[JournalEntry]:
        return []


async def test_a_manager_of_the_version_before_the_last_is_refused_by_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = MemoryBusNetwork()
    service = ClusterService(
        network.client("manager.m1"), NothingToSee(), manager="m1", cluster="shop", environment="default"
    )
    monkeypatch.setattr("mainstay.cluster.cluster_service.MAINSTAY_VERSION", "1.4.0")
    await service.start()
    joining = ClusterClient(network.client("manager.m2"), name="m2", cluster="shop", role="manager")
    assert await joining.journal(most=1) == []
    joining._envelope = msgspec.structs.replace(joining._envelope, v="1.2.0")
    with pytest.raises(VersionSkew, match=r"1\.2\.0"):
        await joining.journal(most=1)
    assert service.refused["version"] == 1
    await service.stop()


async def test_a_manager_with_a_foreign_version_is_an_alarm_and_not_a_neighbour() -> None:
    network = MemoryBusNetwork()
    directory = ManagerDirectory(network.client("manager.m1"), lambda: ManagerInfo(name="m1", version="1.4.0"))
    await directory.start()
    other = network.client("manager.m2")

    async def says(version: str, fits: Callable[[], bool]) -> None:
        await other.publish(SUBJECT, msgspec.msgpack.encode(ManagerInfo(name="m2", version=version, started_ms=1)))
        async with asyncio.timeout(10):
            while not fits():
                await asyncio.sleep(0)

    await says("1.2.0", lambda: bool(directory.alarms()))
    assert "manager m2 has version 1.2.0" in directory.alarms()["manager_version:m2"]
    assert [each.name for each in directory.known()] == ["m1"]
    await says("1.3.0", lambda: not directory.alarms())
    assert [each.name for each in directory.known()] == ["m1", "m2"]
    await directory.stop()


# the cluster of a caller ----------------------------------------------------------------------------------


async def test_a_node_of_another_cluster_is_refused_counted_and_not_a_node_of_this_one() -> None:
    network, store = MemoryBusNetwork(), MemoryStore()
    manager = Manager(
        store, network.client("manager.m1"), ManagerOptions(name="m1", cluster="shop"), rng=random.Random(1)
    )
    await manager.start()
    node = network.client("node.n1")

    async def beats(**more: str) -> None:
        number = manager.members.ignored["cluster"] + len(manager.members.nodes())
        beat = NodeBeat(node="n1", number=1, incarnation="a", version=MAINSTAY_VERSION, **more)
        await node.publish("control.beat.n1", msgspec.msgpack.encode(beat))
        async with asyncio.timeout(10):
            while manager.members.ignored["cluster"] + len(manager.members.nodes()) == number:
                await asyncio.sleep(0)

    try:
        await beats(cluster="shop", environment="staging")
        await beats(cluster="other", environment="default")
        assert manager.members.nodes() == []
        assert manager.refused()["cluster"] == 2
        await beats(cluster="shop", environment="default")
        assert [each.name for each in manager.members.nodes()] == ["n1"]
    finally:
        await manager.stop()
        await store.close()
