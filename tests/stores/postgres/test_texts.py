"""A name that the server cannot store is refused by the name of its field."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mainstay.errors import InvalidInput
from mainstay.model import Options, QueueSettings, Schedule
from mainstay.stores import NewJob
from tests.conformance.world import World

BAD = "a\0b"

Call = Callable[[World], Awaitable[Any]]


def made(world: World, **fields: Any) -> NewJob:
    return world.new(**fields)


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("name", lambda world: world.store.insert([made(world), made(world, name=BAD)])),
        ("queue", lambda world: world.store.insert([made(world, queue=BAD)])),
        ("unique_key", lambda world: world.store.insert([made(world, unique_key=BAD)])),
        ("tags", lambda world: world.store.insert([made(world, options=Options(tags=("x", BAD)))])),
        ("queues", lambda world: world.store.claim(["default", BAD], "s1", 1)),
        ("session", lambda world: world.store.claim(["default"], BAD, 1)),
        ("sessions", lambda world: world.store.beat([BAD])),
        ("queue", lambda world: world.store.set_queue(QueueSettings(name=BAD, paused=True))),
        ("key", lambda world: world.store.set_limit(BAD, 1)),
        ("schedule", lambda world: world.store.put_schedule(Schedule(name=BAD, spec=b""))),
        ("schedule", lambda world: world.store.pause_schedule(BAD, paused=True)),
        ("actor", lambda world: world.store.delete([], actor=BAD, reason="")),
    ],
)
async def test_a_nul_in_a_name_is_refused_by_its_field(world: World, field: str, call: Call) -> None:
    with pytest.raises(InvalidInput, match=f"^{field}: .*has a NUL character") as refused:
        await call(world)

    assert refused.value.field == field
