"""The identity of a registry: a process that opened another one neither writes into it nor makes it unreadable."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstay.control import Control
from mainstay.control.check import check
from mainstay.errors import StoreDamaged, StoreReplaced
from mainstay.stores import open_store
from mainstay.stores.registry import JobRegistry
from mainstay.stores.registry.files import encoded, packed, unpacked
from mainstay.stores.registry.follower import BLOCK, CONFIRMED_S
from mainstay.stores.versioned import VersionedStore, open_versioned
from mainstay.stores.versioned.memory import MemoryVersioned
from mainstay.testing import VirtualClock
from tests.conformance.adapters import BUCKETS
from tests.conformance.world import World
from tests.stores.registry.conftest import Join


def values_of(below: VersionedStore) -> dict[str, Any]:
    assert isinstance(below, MemoryVersioned)
    return below._values


def remove_all(below: VersionedStore) -> dict[str, Any]:
    """What unmounting a disk does to a place; what was there."""
    values = values_of(below)
    gone = dict(values)
    values.clear()
    return gone


async def head_of(below: VersionedStore) -> dict[str, Any]:
    found = await below.get("head")
    assert found is not None
    head: dict[str, Any] = msgspec.json.decode(found.value)
    return head


async def without_identity(below: VersionedStore) -> None:
    """Make a registry what a version before identities made."""
    for key, found in list(values_of(below).items()):
        if key.startswith("log/"):
            lines = unpacked(found.value, key)
            header = {name: value for name, value in lines[0][1].items() if name != "registry"}
            body = packed([encoded(header), *(raw for raw, _ in lines[1:])])
        else:
            document = msgspec.json.decode(found.value)
            body = encoded({name: value for name, value in document.items() if not _is_mark(name)})
        await below.put(key, body, found.version)


def _is_mark(name: str) -> bool:
    return name in ("registry", "made_ms") or name.startswith("identity")


async def test_an_identity_is_made_with_a_registry_and_written_into_everything(
    join: Join, below: VersionedStore
) -> None:
    world, _ = await join()
    await world.open("s1")
    for _ in range(BLOCK):
        await world.store.insert([world.new()])
    assert isinstance(world.store, JobRegistry)
    await world.store._base.home.run(world.store._base.snapshots.settled)

    identity = (await head_of(below))["identity"]

    assert len(identity) == 32
    session = await below.get("sessions/s1")
    assert session is not None
    assert msgspec.json.decode(session.value)["registry"] == identity
    for prefix in ("log/", "snapshot/"):
        keys = await below.list_keys(prefix)
        assert keys
        for key in keys:
            found = await below.get(key)
            assert found is not None
            assert unpacked(found.value, key)[0][1]["registry"] == identity
    again, _ = await join()
    assert await again.dump() == await world.dump()


Act = Callable[[World], Awaitable[object]]

WRITES: dict[str, Act] = {
    "submit": lambda world: world.store.insert([world.new()]),
    "claim": lambda world: world.claim("s1"),
    "session": lambda world: world.open("s2"),
    "queue": lambda world: world.store.set_limit("key", 1),
}


@pytest.mark.parametrize("what", WRITES)
async def test_a_process_of_an_earlier_registry_is_refused_and_writes_nothing(
    join: Join, below: VersionedStore, what: str
) -> None:
    old, _ = await join()
    await old.open("s1")
    await old.submit()
    before = remove_all(below)
    new, _ = await join()
    await new.submit()
    now = dict(values_of(below))

    with pytest.raises(StoreReplaced, match=r"another job registry .*Nothing was written.*restart this process"):
        await WRITES[what](old)

    assert dict(values_of(below)) == now
    [pulse] = await old.store.beat(["s1"])
    assert not pulse.known
    assert await old.store.drain(["s1"], by="ann") == [False]
    assert dict(values_of(below)) == now
    for _ in range(5):
        await new.submit()
    await new.assert_sound()
    fresh, _ = await join()
    assert await fresh.dump() == await new.dump()

    # the disk is mounted again
    values_of(below).clear()
    values_of(below).update(before)
    await WRITES[what](old)
    await old.assert_sound()


async def test_a_process_that_only_reads_learns_of_it_within_seconds(
    join: Join, below: VersionedStore, clock: VirtualClock
) -> None:
    old, _ = await join()
    job = await old.submit()
    remove_all(below)
    await join()

    clock.advance(CONFIRMED_S + 0.001)

    with pytest.raises(StoreReplaced):
        await old.row(job)


async def test_a_process_that_meets_commits_of_the_new_registry_is_refused(join: Join, below: VersionedStore) -> None:
    old, _ = await join()
    job = await old.submit()
    remove_all(below)
    new, _ = await join()
    await new.submit()
    await new.submit()

    with pytest.raises(StoreReplaced):
        await old.row(job)


async def test_a_commit_of_another_registry_is_skipped_by_all(
    join: Join, below: VersionedStore, caplog: pytest.LogCaptureFixture
) -> None:
    old, way = await join()
    await old.submit()
    await old.submit()
    made: list[World] = []

    async def replace(call: str, key: str) -> None:
        # after the process has read the head: it cannot know
        if call == "create" and key.startswith("log/") and not made:
            remove_all(below)
            made.append((await join())[0])

    way.before = replace
    [lost] = await old.store.insert([old.new()])
    [new] = made
    assert await below.list_keys("log/") == ["log/000000000003"]

    with caplog.at_level(logging.WARNING, logger="mainstay.stores.registry"):
        jobs = [await new.submit() for _ in range(BLOCK + 3)]
        assert isinstance(new.store, JobRegistry)
        await new.store._base.home.run(new.store._base.snapshots.settled)

    assert "log/000000000003" in caplog.text
    assert "it is skipped" in caplog.text
    assert [found.job.id for found in await new.store.audit(limit=500)] == sorted(job.id for job in jobs)
    assert await new.store.get([lost.id]) == [None]
    await new.assert_sound()
    fresh, _ = await join()
    assert await fresh.dump() == await new.dump()
    with pytest.raises(StoreReplaced):
        await old.row(lost.id)


async def test_a_registry_of_the_version_before_gets_an_identity_with_the_next_commit(
    join: Join, below: VersionedStore
) -> None:
    first, _ = await join()
    await first.submit()
    await without_identity(below)
    one, _ = await join()
    two, _ = await join()
    assert len(await one.store.audit()) == 1
    assert "identity" not in await head_of(below), "who only reads changes nothing"

    await one.submit()
    head = await head_of(below)
    assert head["identity"]
    assert head["identity_added"] is True
    await two.submit()
    assert (await head_of(below)) == head

    await one.assert_sound()
    three, _ = await join()
    assert await three.dump() == await one.dump() == await two.dump()


async def test_commits_of_programs_of_the_version_before_count(join: Join, below: VersionedStore) -> None:
    world, _ = await join()
    await world.submit()
    # its second commit is what such a program writes into a registry that has an identity
    job = await world.submit()
    found = await below.get("log/000000000002")
    assert found is not None
    lines = unpacked(found.value, "here")
    header = {name: value for name, value in lines[0][1].items() if name != "registry"}
    await below.put("log/000000000002", packed([encoded(header), *(raw for raw, _ in lines[1:])]), found.version)

    again, _ = await join()

    assert (await again.row(job)).id == job.id


async def test_a_process_of_a_registry_without_identity_is_refused_by_one_that_has_it(
    join: Join, below: VersionedStore
) -> None:
    first, _ = await join()
    await first.submit()
    await without_identity(below)
    old, _ = await join()
    remove_all(below)
    new, _ = await join()
    await new.submit()

    with pytest.raises(StoreReplaced):
        await old.submit()

    await new.assert_sound()


async def test_a_process_is_refused_by_a_registry_that_has_no_identity(join: Join, below: VersionedStore) -> None:
    old, _ = await join()
    await old.submit()
    remove_all(below)
    await join()
    await without_identity(below)

    with pytest.raises(StoreReplaced, match="identity unknown"):
        await old.submit()


async def test_a_lost_head_is_made_again_from_a_log_that_is_whole(join: Join, below: VersionedStore) -> None:
    world, _ = await join()
    job = await world.submit()
    identity = (await head_of(below))["identity"]
    del values_of(below)["head"]

    again, _ = await join()

    assert (await head_of(below))["identity"] == identity
    assert (await again.row(job)).id == job.id
    await world.submit()
    await again.assert_sound()


@pytest.mark.parametrize("left", ["log/000000000065", "snapshot/000000000064-aa/000000", "events/000000000001-x"])
async def test_no_registry_is_made_over_the_remains_of_another(join: Join, below: VersionedStore, left: str) -> None:
    await below.create_if_absent(left, b"")

    with pytest.raises(StoreDamaged, match=f"head in memory: is missing.*{left}.*nothing was changed"):
        await join()

    assert await below.list_keys() == [left]


async def test_a_snapshot_of_another_registry_is_not_read(join: Join, below: VersionedStore) -> None:
    world, _ = await join()
    for _ in range(BLOCK):
        await world.store.insert([world.new()])
    assert isinstance(world.store, JobRegistry)
    await world.store._base.home.run(world.store._base.snapshots.settled)
    [key] = await below.list_keys("snapshot/")
    found = await below.get(key)
    assert found is not None
    lines = unpacked(found.value, key)
    forged = packed([encoded({**lines[0][1], "registry": "0" * 32}), *(raw for raw, _ in lines[1:])])
    await below.put(key, forged, found.version)

    with pytest.raises(StoreDamaged, match="it belongs to another registry"):
        await join()


async def _cleared(url: str) -> None:
    values = await open_versioned(url)
    try:
        for key in await values.list_keys():
            found = await values.get(key)
            assert found is not None
            assert await values.delete(key, found.version)
    finally:
        await values.close()


@pytest.mark.parametrize("where", ["file", "s3", "azure"])
async def test_a_place_that_was_cleared_and_used_again_serves_its_new_processes_only(
    where: str, tmp_path: Path
) -> None:
    if where == "file":
        url = f"file://{tmp_path}/jobs"
    else:
        bucket = BUCKETS[where]
        assert bucket.prepare is not None
        url = bucket.at(tmp_path)
        await bucket.prepare(url)
    old = await open_store(url)
    jobs = [await Control(old).jobs.submit("t", {"n": n}) for n in range(3)]
    if where == "file":
        (tmp_path / "jobs").rename(tmp_path / "away")
    else:
        await _cleared(url)
    new = await open_store(url)
    await Control(new).jobs.submit("t", {})

    with pytest.raises(StoreReplaced):
        await Control(old).operations.cancel(jobs[0].id, actor="ann")
    with pytest.raises(StoreReplaced):
        await Control(old).jobs.submit("t", {})

    for n in range(5):
        await Control(new).jobs.submit("t", {"n": n})
    assert (await check(new)).clean
    fresh = await open_store(url)
    assert len(await fresh.audit()) == 6
    for store in (fresh, new, old):
        await store.close()
