"""Writers killed with SIGKILL in the middle of their writes: no torn value, no lost answer, no lock left."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mainstay.stores.versioned import VersionedStore, open_versioned
from tests.crash.test_sigkill import Victim, crew_of
from tests.stores.sqlite.process import Child
from tests.stores.versioned import crashing

KILLS, CREW, MOST_LINES = 60, 6, 6
URLS = {"file": "file://{folder}/values", "sqlite": "sqlite:///{folder}/values.db"}


class Told(msgspec.Struct):
    """All that was ever acknowledged."""

    wrote: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """key -> numbers"""
    own: dict[str, tuple[str, int]] = msgspec.field(default_factory=dict)
    """who -> what was told last of its own key"""
    torn: list[str] = msgspec.field(default_factory=list)

    def hear(self, who: str, line: str) -> None:
        what, *values = line.split()
        match what:
            case "wrote":
                self.wrote.setdefault(values[0], []).append(int(values[1]))
            case "made" | "gone":
                self.own[who] = (what, int(values[0]))
            case _:
                self.torn.append(line)


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return URLS[request.param].format(folder=tmp_path)


@pytest.fixture
def nursery(url: str) -> Iterator[Child]:
    child = Child(Path(crashing.__file__), url)
    yield child
    child.end()


def kill(victim: Victim, rng: random.Random, told: Told) -> None:
    """Hear some lines, then let it go on for a part of the time a line takes, so that it dies anywhere."""
    lines, began = rng.randint(1, MOST_LINES), time.monotonic()
    for _ in range(lines):
        told.hear(victim.name, victim.line())
    time.sleep(rng.uniform(0, 1) * (time.monotonic() - began) / lines)
    for line in victim.killed():
        told.hear(victim.name, line)


async def assert_kept(store: VersionedStore, told: Told) -> None:
    assert told.torn == []
    for key, numbers in told.wrote.items():
        assert len(numbers) == len(set(numbers)), "two writers were told that the same change of a value was theirs"
        found = await store.get(key)
        assert found is not None
        n = crashing.unpacked(found.value)
        assert n is not None, "a torn value"
        assert n >= max(numbers), "an acknowledged write is gone"
    for who, (what, n) in told.own.items():
        found = await store.get(f"own/{who}")
        # what it was doing when it died may have been done or not
        there = None if found is None else crashing.unpacked(found.value)
        assert there in ((n, None) if what == "made" else (None, n + 1)), (who, what, n, there)


@pytest.mark.slow
async def test_killed_writers_tear_nothing_lose_nothing_and_lock_nothing(
    url: str, tmp_path: Path, nursery: Child
) -> None:
    rng, told = random.Random(5), Told()
    for start in range(0, KILLS, CREW):
        with crew_of(CREW, nursery, tmp_path, f"from{start}") as crew:
            for victim in crew:
                kill(victim, rng, told)

    store = await open_versioned(f"{url}?busy_timeout=2s")
    try:
        await assert_kept(store, told)
        assert len(told.own) > KILLS / 2
        # a lock that was left would show in one of these
        made = await asyncio.gather(*(store.create_if_absent(f"after/{n}", b"x") for n in range(600)))
        assert all(made)
    finally:
        await store.close()
    assert not (tmp_path / "values" / ".new").exists() or os.listdir(tmp_path / "values" / ".new") == []
