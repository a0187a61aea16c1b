"""Processes that share a registry in a bucket. Those that share a folder are in the conformance suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.control.check import check
from mainstay.stores import open_store
from mainstay.stores.registry import JobRegistry
from tests.conformance.actors import LIMIT, LIMITED, Plan, in_processes
from tests.conformance.adapters import BUCKETS
from tests.conformance.history import wrongs
from tests.conformance.test_concurrency import ended_in


@pytest.mark.slow
async def test_processes_that_share_a_bucket_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    s3 = BUCKETS["s3"]
    assert s3.prepare is not None
    await s3.prepare(s3.at(tmp_path))
    store = await open_store(s3.at(tmp_path))
    assert isinstance(store, JobRegistry)
    await store.set_limit(LIMITED, LIMIT)
    plan = Plan(submitters=2, each=40, shared=10)

    history = await in_processes(s3.at(tmp_path), plan, tmp_path, workers=2)

    ended = await ended_in(store)
    assert wrongs(history, ended, {LIMITED: LIMIT}) == []
    assert len(ended) == plan.total
    assert {row.status for row in ended} == {"succeeded"}
    assert (await check(store)).violations == ()
    assert len({entry.actor for entry in history if entry.what == "claim"}) == 2
    await store.close()
