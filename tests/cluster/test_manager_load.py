"""The level of a manager, and what it does to requests."""

from __future__ import annotations

import asyncio
from typing import Self

import msgspec
import pytest

from mainstay.bundles import BundleClient
from mainstay.bus import LEVELS, MemoryBusNetwork, MessageClass, OverloadLevel
from mainstay.cluster.cluster_service import ClusterClient
from mainstay.cluster.manager import Manager, ManagerOptions
from mainstay.cluster.manager_load import LoadSample, ManagerLoad, OwnLoad
from mainstay.control import Control
from mainstay.errors import InvalidTransition, NoResponders, Overloaded, RequestTimeout
from mainstay.stores import urgent_reads
from mainstay.stores.memory import MemoryStore
from mainstay.stores.remote import MAINSTAY_VERSION, RemoteStore
from mainstay.testing import run_virtual

QUIET = LoadSample(0.1, 0.1, 0.0)


@pytest.mark.parametrize(
    ("sample", "level", "cause"),
    [
        (LoadSample(0.1, 0.1, 0.2), "busy", "delay"),
        (LoadSample(0.1, 0.1, 0.5), "stressed", "delay"),
        (LoadSample(0.1, 0.1, 2.0), "overloaded", "delay"),
        (LoadSample(0.7, 0.1, 0.0), "busy", "cpu"),
        (LoadSample(0.95, 0.7, 0.2), "overloaded", "cpu"),
        (LoadSample(0.1, 0.85, 0.0), "stressed", "memory"),
    ],
)
def test_three_samples_change_a_level_one_peak_does_not(sample: LoadSample, level: OverloadLevel, cause: str) -> None:
    changes: list[tuple[OverloadLevel, LoadSample]] = []
    load = ManagerLoad(on_change=lambda level, sample: changes.append((level, sample)))
    for each in (sample, sample, QUIET, sample, sample):
        load.take(each)
    assert (load.level, changes) == ("normal", [])

    load.take(sample)
    assert (load.level, changes) == (level, [(level, sample)])
    assert sample.cause == cause

    for each in (QUIET, QUIET, sample, QUIET, QUIET):
        load.take(each)
    assert load.level == level
    load.take(QUIET)
    assert [each for each, _ in changes] == [level, "normal"]


def test_the_delay_of_the_event_loop_is_measured() -> None:
    async def main() -> list[LoadSample]:
        seen: list[LoadSample] = []
        load = ManagerLoad(sample=lambda late_s: LoadSample(0.3, 0.2, late_s))
        load.take = seen.append  # type: ignore[method-assign] # what it judges
        await load.start()
        await asyncio.sleep(3.5)
        await load.stop()
        await load.stop()
        return seen

    assert run_virtual(main()) == [LoadSample(0.3, 0.2, 0.0)] * 3


def test_the_load_of_this_process_is_a_share() -> None:
    load = OwnLoad()
    sum(range(1_000_000))
    sample = load.sample(0.3)
    assert 0 < sample.cpu <= 1
    assert 0 <= sample.memory < 1
    assert sample.late_s == 0.3


class LoadedManager:
    """A manager whose level a test sets, with two connections; and an operator."""

    def __init__(self) -> None:
        self.network = MemoryBusNetwork()
        self.cpu = 0.0
        self.store = MemoryStore()
        self.manager = Manager(
            self.store,
            self.network.client("manager.m1"),
            ManagerOptions(name="m1", cluster="test"),
            data_bus=self.network.client("manager.m1.data"),
            sample_load=lambda _: LoadSample(self.cpu, 0.0, 0.0),
        )
        self.remote = RemoteStore(
            self.network.client("operator.ann"), role="operator", name="ann", cluster="test", version=MAINSTAY_VERSION
        )
        self.client = ClusterClient(self.network.client("operator.ann.status"), name="ann", cluster="test")
        self.control = Control(self.remote, actor="ann")

    def set_level(self, level: OverloadLevel) -> None:
        self.cpu = (0.0, 0.7, 0.85, 0.95)[LEVELS.index(level)]
        for _ in range(3):
            self.manager.load.take(LoadSample(self.cpu, 0.0, 0.0))
        assert self.manager.load.level == level

    async def __aenter__(self) -> Self:
        await self.manager.start()
        await self.remote.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.manager.stop()
        await self.remote.close()
        await self.store.close()


async def submitted(world: LoadedManager) -> str:
    return (await world.control.jobs.submit("report", {"n": 1})).id


def test_a_cancel_passes_while_every_read_is_shed() -> None:
    async def main() -> None:
        async with LoadedManager() as world:
            job, other, ended = [await submitted(world) for _ in range(3)]
            await world.control.operations.force(ended, "succeeded", actor="ann", reason="done by hand")
            world.set_level("overloaded")
            with pytest.raises(Overloaded, match="the manager is overloaded and takes no data requests"):
                await world.control.jobs.get(job)
            with pytest.raises(Overloaded, match="takes no dispatch requests"):
                await submitted(world)

            assert (await world.control.operations.cancel(job, actor="ann")).status == "cancelled"
            (outcome,) = await world.control.operations.cancel_many([other], actor="ann")
            assert outcome.job is not None
            assert outcome.job.status == "cancelled"
            with pytest.raises(InvalidTransition) as refused:
                await world.control.operations.cancel(ended, actor="ann")
            assert not refused.value.story  # to read it would be a read like any other

    run_virtual(main())


def test_a_read_is_not_more_urgent_because_its_caller_says_so() -> None:
    async def main() -> None:
        async with LoadedManager() as world:
            job = await submitted(world)
            world.set_level("stressed")
            with urgent_reads():
                assert (await world.remote.get([job]))[0] is not None
                with pytest.raises(Overloaded):
                    await world.remote.stats()
            bus = world.network.client("node.n1")
            request = msgspec.structs.replace(world.remote.envelope(b"\x80"), id="x")
            for subject in ("control.store.operator.ann.stats", "control.store.node.n1.get"):
                body = await bus.request(subject, msgspec.msgpack.encode(request), 1)
                assert msgspec.msgpack.decode(body)["error"]["code"] == "overloaded"

    run_virtual(main())


def test_a_status_is_seen_at_every_level_and_shows_it() -> None:
    async def main() -> None:
        async with LoadedManager() as world:
            for level in LEVELS:
                world.set_level(level)
                status = await world.client.status()
                assert [each.level for each in status.managers] == [level]
            with pytest.raises(Overloaded) as refused:
                await world.client.journal()
            assert refused.value.retry_after_s == 1.0
            bundles = BundleClient(
                world.network.client("operator.ann.b"),
                role="operator",
                name="ann",
                cluster="test",
                environment="default",
                version=MAINSTAY_VERSION,
            )
            with pytest.raises(Overloaded):
                await bundles.listing()
            (manager,) = (await world.client.status()).managers
            assert manager.shed == {"data": 2}
            assert manager.refused["overload"] == 2
            notes = [entry for entry in world.manager.journal_entries() if entry.event == "manager_level"]
            assert [(note.about, note.cause) for note in notes] == [("m1", "cpu")] * 3
            assert notes[0].text.startswith("manager m1 is busy: its event loop is 0 ms late and uses 70 % of a core")

    run_virtual(main())


def test_messages_that_a_full_queue_drops_are_counted_by_class() -> None:
    async def main() -> None:
        async with LoadedManager() as world:
            bus = world.manager.data_bus
            async with await bus.subscribe("data.window.>", limit=10):
                for _ in range(25):
                    await world.network.client("node.n1").publish("data.window.n1.job.0", b"")
            assert world.manager.info().shed == {MessageClass.DATA: 15}

    run_virtual(main())


class LostAnswers:
    """A bus on which nothing is answered."""

    def __init__(self, *errors: Exception) -> None:
        self.asked_s: list[float] = []
        self._errors = list(errors)

    async def request(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        del subject, body, timeout_s
        self.asked_s.append(asyncio.get_running_loop().time())
        raise self._errors.pop(0)


def test_a_question_that_is_not_answered_is_asked_three_times_with_growing_pauses() -> None:
    async def main() -> None:
        longest = [0.0, 0.0]
        for _ in range(200):
            bus = LostAnswers(NoResponders("x"), RequestTimeout("x", 1), NoResponders("x"))
            client = ClusterClient(bus, name="ann", cluster="test")  # type: ignore[arg-type] # one method is enough
            with pytest.raises(NoResponders):
                await client.status()
            first, second, third = bus.asked_s
            longest = [max(longest[0], second - first), max(longest[1], third - second)]
        assert 0.45 < longest[0] <= 0.5
        assert 0.9 < longest[1] <= 1.0

    run_virtual(main())
