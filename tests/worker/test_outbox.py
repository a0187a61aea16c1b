"""Endings that were kept in a file, and written later."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mainstay.bus import MemoryBusNetwork
from mainstay.errors import InvalidInput
from mainstay.lifecycle import Chain, Move
from mainstay.model import Job, Session
from mainstay.stores import SealedChange
from mainstay.stores.memory import MemoryStore
from mainstay.stores.remote import MAINSTAY_VERSION, RemoteStore, StoreService
from mainstay.testing import VirtualClock
from mainstay.worker.outbox import Recording, keep, kept_files, write_kept
from tests.conformance.world import World

URL = "memory:"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MAINSTAY_STATE", str(tmp_path))
    return tmp_path / "aside"


@pytest.fixture
async def world() -> World:
    clock = VirtualClock()
    world = World(MemoryStore(clock), clock)
    await world.open("s1", "s2")
    return world


def done(world: World, job: Job) -> SealedChange:
    end = Move(to="succeeded", fields={"result": b"\x00 42"})
    return world.sealed(world.change(job, end, holder=job.session, spawn=(world.new(queue="next"),)))


def keep_some(world: World, *changes: SealedChange, url: str = URL) -> Path:
    return keep(changes, store_url=url, session="s1", at_ms=world.clock.now_ms())


async def written(world: World) -> dict[str, str]:
    return {one.job_id: one.outcome async for one in write_kept(world.store, kept_files(URL))}


async def test_what_was_kept_is_written_as_its_worker_would_have(world: World, folder: Path) -> None:
    job = await world.running()
    keep_some(world, done(world, job))
    assert await written(world) == {job.id: "applied"}
    row = await world.row(job)
    assert (row.status, row.result) == ("succeeded", b"\x00 42")
    assert (await world.store.stats()).queues["next"].counts == {"pending": 1}
    assert list(folder.iterdir()) == []
    await world.assert_sound()


async def test_each_is_answered_on_its_own(world: World, folder: Path) -> None:
    fine, again, lost, gone = [await world.running() for _ in range(4)]
    changes = [done(world, job) for job in (fine, again, lost, gone)]
    keep_some(world, *changes)
    await world.store.apply([changes[1]])
    await world.move(lost, "timed_out", "pending")
    await world.claim("s2", queues=["own"])
    await world.move(gone, "timed_out", "cancelled")
    await world.store.delete([gone.id], actor="ann", reason="tidy")

    assert await written(world) == {
        fine.id: "applied",
        again.id: "already_applied",
        lost.id: "stale",
        gone.id: "missing",
    }
    assert [refusal.session for refusal in await world.store.refusals(lost.id)] == ["s1"]
    assert list(folder.iterdir()) == []


async def test_what_is_in_conflict_stays_for_another_time(world: World, folder: Path) -> None:
    job, other = await world.running(), await world.running()
    keep_some(world, done(world, job), done(world, other))
    await world.move(job, Move(to="running", reason="a remark", flag="note"))
    assert await written(world) == {job.id: "conflict", other.id: "applied"}
    [left] = kept_files(URL)
    assert [change.before.id for change in left.changes] == [job.id]


async def test_what_belongs_to_another_store_is_left_alone(world: World) -> None:
    job = await world.running()
    keep_some(world, done(world, job), url="postgresql://ann:secret@db/jobs")
    assert await written(world) == {}
    [file] = kept_files("postgresql://ben:other@db/jobs".replace("ben:other", "ann:new"))
    assert "secret" not in file.path.read_text()


async def test_a_file_is_for_its_owner_only_and_replaced_whole(world: World) -> None:
    job = await world.running()
    path = keep_some(world, done(world, job))
    keep_some(world, done(world, job))
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(("text", "why"), [("", "cannot be read"), ("{", "cannot be read"), ('{"schema": 2}', "newer")])
async def test_a_file_that_cannot_be_used_is_named_and_left(world: World, text: str, why: str) -> None:
    job = await world.running()
    path = keep_some(world, done(world, job))
    header = msgspec.json.decode(path.read_bytes().splitlines()[0])
    path.write_bytes(msgspec.json.encode({**header, "schema": 2}) if "schema" in text else text.encode())
    with pytest.raises(InvalidInput, match=why):
        kept_files(URL)
    assert path.exists()


async def test_what_a_node_kept_is_sealed_by_the_store_that_has_the_key(folder: Path) -> None:
    clock = VirtualClock()
    direct = World(MemoryStore(clock, Chain(b"key")), clock)
    network = MemoryBusNetwork()
    service = StoreService(direct.store, network.client("m1"), manager="m1", cluster="c", version=MAINSTAY_VERSION)
    await service.start()
    bus = network.client("n1")
    node = RemoteStore(bus, role="node", name="n1", cluster="c", version=MAINSTAY_VERSION, clock=clock)
    await node.open()
    session = f"n1.{'a' * 32}"
    await node.open_session(Session(id=session, worker="n1", started_ms=clock.now_ms()))
    await direct.submit()
    [job] = await node.claim(["default"], session, 1)

    recording = Recording(node)
    end = Move(to="succeeded", fields={"result": b"\x00 42"})
    await recording.apply([direct.change(job, end, holder=session, spawn=(direct.new(queue="next"),))])
    keep(recording.changes, store_url=node.url, session=session, at_ms=clock.now_ms())

    assert [one.outcome async for one in write_kept(node, kept_files(node.url))] == ["applied"]
    row = await direct.row(job)
    assert (row.status, row.result) == ("succeeded", b"\x00 42")
    assert list(folder.iterdir()) == []
    await direct.assert_sound()
    await service.stop()
