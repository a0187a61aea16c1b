"""SQLite versions that can lose a commit when several processes share a WAL: alone or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.errors import UnsafeEngine
from mainstay.stores.sqlite import SqliteStore, store
from tests.conformance.world import World
from tests.stores.sqlite.conftest import Spawn

OLD = "3.40.1"


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 50, 7), True),
        ((3, 51, 0), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_the_affected_versions_are_known(version: tuple[int, ...], affected: bool) -> None:
    assert store.is_affected(version) is affected


def test_the_version_this_project_installs_is_not_affected() -> None:
    assert not store.is_affected(store.sqlite_version())


@pytest.fixture
def old_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "sqlite_version", lambda: tuple(map(int, OLD.split("."))))


@pytest.mark.usefixtures("old_engine")
async def test_one_process_alone_may_use_an_affected_version(path: Path) -> None:
    for _ in range(2):
        opened = SqliteStore(path)
        world = World(opened, opened.clock)  # type: ignore[arg-type]
        await world.submit()
        await world.assert_sound()
        await opened.close()


@pytest.mark.usefixtures("old_engine")
async def test_a_second_process_is_refused_while_an_affected_one_is_there(path: Path, spawn: Spawn) -> None:
    opened = SqliteStore(path)
    told = spawn("open_it", path).line()
    assert told.startswith("unsafe_engine ")
    assert "that process has a version of SQLite with a bug" in told
    assert "pip install 'apsw>=3.51.3'" in told
    await opened.close()
    assert spawn("open_it", path).line() == "open"


async def test_an_affected_process_is_refused_while_another_is_there(path: Path, spawn: Spawn) -> None:
    opened = SqliteStore(path)
    told = spawn("open_it", path, OLD).line()
    assert told.startswith("unsafe_engine ")
    assert f"this process has SQLite {OLD} with a bug" in told
    assert "pip install 'apsw>=3.51.3'" in told
    world = World(opened, opened.clock)  # type: ignore[arg-type]
    await world.submit()
    await world.assert_sound()
    await opened.close()
    assert spawn("open_it", path, OLD).line() == "open"


async def test_an_affected_process_that_dies_makes_room_for_others(path: Path, spawn: Spawn) -> None:
    child = spawn("open_it", path, OLD)
    assert child.line() == "open"
    with pytest.raises(UnsafeEngine):
        SqliteStore(path)
    child.kill()
    await SqliteStore(path).close()


async def test_a_refused_process_leaves_nothing_open(path: Path, spawn: Spawn) -> None:
    child = spawn("open_it", path, OLD)
    assert child.line() == "open"
    handles = sorted(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        with pytest.raises(UnsafeEngine):
            SqliteStore(path)
    assert sorted(Path("/proc/self/fd").iterdir()) == handles
