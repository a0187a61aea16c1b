"""Managers as they know each other, and what keeps one of them answering."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mainstay.bus import MemoryBusNetwork
from mainstay.cluster.cluster_service import ClusterClient, ClusterService
from mainstay.cluster.managers import ManagerDirectory
from mainstay.cluster.status import ClusterStatus, JournalEntry, ManagerInfo
from mainstay.errors import MainstayError


def directory(network: MemoryBusNetwork, name: str, *, session: str, host: str) -> ManagerDirectory:
    info = ManagerInfo(name=name, host=host, pid=1, started_ms=1, session=session)
    return ManagerDirectory(network.client(f"manager.{name}"), lambda: info, every_s=0.01)


async def test_two_managers_with_one_name_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    network = MemoryBusNetwork()
    first = directory(network, "m1", session="m1.a", host="here")
    second = directory(network, "m1", session="m1.b", host="there")
    other = directory(network, "m2", session="m2.a", host="here")
    with caplog.at_level(logging.ERROR):
        for each in (first, second, other):
            await each.start()
        async with asyncio.timeout(5):
            while not first.alarms() or not second.alarms():
                await asyncio.sleep(0)

    text = "two managers use the name m1: one on here and one on there; rename one of them"
    assert first.alarms() == {"manager_name:m1": text}
    assert other.alarms() == {}
    assert len([record for record in caplog.records if "two managers use the name" in record.message]) == 2
    for each in (first, second, other):
        await each.stop()


class View:
    """A cluster whose journal cannot be written."""

    async def status(self) -> ClusterStatus:
        return ClusterStatus(
            cluster="test", environment="default", at_ms=1, manager="m1", managers=[], nodes=[], leads=[]
        )

    async def drain(self, node: str, by: str) -> bool:
        raise OSError(28, "No space left on device")

    def peers(self) -> list[str]:
        return []

    def journal_entries(
        self, *, from_ms: int | None = None, until_ms: int | None = None, most: int = 50
    ) -> list[JournalEntry]:
        return []


async def test_a_request_that_fails_does_not_end_the_answers_to_others() -> None:
    network = MemoryBusNetwork()
    service = ClusterService(network.client("manager.m1"), View(), manager="m1", cluster="test", environment="default")
    await service.start()
    client = ClusterClient(network.client("operator.ann"), name="ann", cluster="test")

    with pytest.raises(MainstayError, match="No space left"):
        await client.drain("n1", by="ann")
    with pytest.raises(MainstayError, match="cannot be read"):
        await client._ask("journal", {"most": "many"})
    assert (await client.status()).manager == "m1"
    await service.stop()
