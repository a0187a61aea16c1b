"""The levels of durability, and the stores that have only some of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.errors import InvalidInput
from mainstay.stores import open_store
from mainstay.stores.durability import check_durability, refused, strongest
from mainstay.stores.memory import MemoryStore


def test_a_batch_is_as_safe_as_the_most_careful_of_it_asked() -> None:
    assert strongest([None, "local", "applied", "replicated"]) == "applied"
    assert strongest([None, None]) is None


@pytest.mark.parametrize("value", ["", "LOCAL", "remote_apply", None, 3])
def test_what_is_no_level_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="is not one of local, replicated, applied"):
        check_durability(value)


def test_a_refusal_says_what_can_be_had_instead() -> None:
    assert str(refused("applied", "there is no replica", can=["local"])) == (
        "durability: 'applied' cannot be given here: there is no replica; it can give local"
    )
    assert str(refused("local", "nothing is kept")).endswith("; leave the durability out, or use another store")


def test_memory_gives_none() -> None:
    with pytest.raises(InvalidInput, match="loses them with the process"):
        MemoryStore().durability_of("local")


async def test_sqlite_gives_its_own_disk_if_it_is_told_to_be_durable(tmp_path: Path) -> None:
    durable = await open_store(f"sqlite:///{tmp_path}/a.db")
    fast = await open_store(f"sqlite:///{tmp_path}/b.db?durable=no")
    try:
        assert durable.durability_of("local").startswith("local: a write survives a crash of the process")
        with pytest.raises(InvalidInput, match="has no replicas; it can give local"):
            durable.durability_of("replicated")
        with pytest.raises(InvalidInput, match="opened with durable=no"):
            fast.durability_of("local")
        with pytest.raises(InvalidInput, match="leave the durability out"):
            fast.durability_of("applied")
    finally:
        await durable.close()
        await fast.close()
