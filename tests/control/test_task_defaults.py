"""What a submit by name takes from its task."""

from __future__ import annotations

import pytest

from mainstay.control.task_defaults import TaskDefaults, with_task_defaults
from mainstay.model import Offer, Session
from mainstay.testing import MemoryStore, VirtualClock


@pytest.mark.parametrize(
    ("given", "defaults", "made"),
    [
        ({}, {"queue": "mail"}, {"queue": "mail"}),
        ({"queue": None}, {"queue": "mail"}, {"queue": "mail"}),
        ({"queue": "own"}, {"queue": "mail"}, {"queue": "own"}),
        ({"metadata": {"a": "2"}}, {"metadata": {"a": "1", "b": "1"}}, {"metadata": {"a": "2", "b": "1"}}),
        ({"unique": False}, {"unique": True, "on_clash": "refuse"}, {"unique": False}),
        ({"stall_timeout": "off"}, {"stall_timeout": "5s", "on_stall": "hold"}, {"stall_timeout": "off"}),
    ],
)
def test_what_a_submit_says_goes_before_its_task(
    given: dict[str, object], defaults: dict[str, object], made: dict[str, object]
) -> None:
    assert with_task_defaults(given, defaults) == made


async def offer(store: MemoryStore, session: str, started_ms: int, **options: object) -> None:
    made = Offer(queues=("q",), tasks={"t": options})
    await store.open_session(Session(id=session, started_ms=started_ms, offer=made))


async def test_the_worker_that_started_last_decides_and_is_remembered() -> None:
    store, now = MemoryStore(VirtualClock()), [0.0]
    defaults = TaskDefaults(store, now_s=lambda: now[0])
    assert dict(await defaults.of(["t"])) == {}
    await offer(store, "new", 2, retries=7)
    await offer(store, "old", 1, retries=3)

    assert (await defaults.of(["t"]))["t"] == {"retries": 7}

    for session in ("new", "old"):
        await store.close_session(session)
    now[0] = 60.0
    assert (await defaults.of(["t"]))["t"] == {"retries": 7}


async def test_what_was_read_is_used_for_a_second() -> None:
    store, now = MemoryStore(VirtualClock()), [0.0]
    defaults = TaskDefaults(store, now_s=lambda: now[0])
    await offer(store, "first", 1, retries=1)
    assert (await defaults.of(["t"]))["t"] == {"retries": 1}
    await offer(store, "second", 2, retries=2)

    now[0] = 0.9
    assert (await defaults.of(["t"]))["t"] == {"retries": 1}
    now[0] = 1.0
    assert (await defaults.of(["t"]))["t"] == {"retries": 2}
