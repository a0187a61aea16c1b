"""Which bundles the runs of a store still need."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainstay.load.placement.needed_bundles import needed_bundles
from mainstay.stores import JobStore, open_store
from mainstay.testing import VirtualClock
from tests.load.placement.runs import Cluster


@pytest.fixture
async def store() -> AsyncIterator[JobStore]:
    opened = await open_store("memory:", clock=VirtualClock())
    yield opened
    await opened.close()


async def test_the_code_of_a_run_is_needed_until_the_run_has_ended(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    waiting, running = await cluster.submit(processes=8, code="aaaa"), await cluster.submit(processes=4, code="bbbb")
    await cluster.place()
    assert await needed_bundles(store) == {"aaaa": f"job {waiting} needs it", "bbbb": f"job {running} needs it"}

    await cluster.control.operations.cancel(waiting, actor="ann", reason="no need")
    assert list(await needed_bundles(store)) == ["bbbb"]


async def test_a_run_of_installed_modules_needs_no_bundle(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    await cluster.submit(code="")
    assert await needed_bundles(store) == {}
