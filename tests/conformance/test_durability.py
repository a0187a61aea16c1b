"""A submit may ask how safe its job is to be: a store grants it, or says that it cannot."""

from __future__ import annotations

import pytest

from mainstay.errors import InvalidInput
from mainstay.stores import LEVELS, Durability
from tests.conformance.world import World


def refusal(world: World, level: Durability) -> InvalidInput | None:
    try:
        world.store.durability_of(level)
    except InvalidInput as error:
        return error
    return None


@pytest.mark.parametrize("level", LEVELS)
async def test_a_level_is_granted_and_named_or_refused_with_nothing_written(world: World, level: Durability) -> None:
    new = world.new()
    if (refused := refusal(world, level)) is not None:
        assert (refused.field, level in refused.rule) == ("durability", True)
        with pytest.raises(InvalidInput, match="durability"):
            await world.store.insert([new], durability=level)
        assert await world.store.get([new.job.id]) == [None]
        return
    assert world.store.durability_of(level).startswith(f"{level}: ")
    [made] = await world.store.insert([new], durability=level)
    assert made.created
    assert (await world.row(new.job.id)).status == "pending"


async def test_a_store_says_what_an_answer_survives(world: World) -> None:
    assert world.store.durability
