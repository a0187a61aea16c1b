"""A server that crashed has forgotten a claim, and its holder lives on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import redis

from mainstay.lifecycle import Move, apply
from mainstay.model import IdSource, Job, Session
from mainstay.stores import JobStore, SealedChange, open_store
from mainstay.testing import new_job
from servers import Redis


def done(store: JobStore, job: Job, holder: str) -> SealedChange:
    moved = apply(job, Move(to="succeeded"), now_ms=store.clock.now_ms(), actor=holder, chain=store.chain)
    return SealedChange.of(job, moved, holder=holder)


@pytest.mark.parametrize("second", ["s2", "s1"])
async def test_a_ghost_does_not_end_a_job_that_was_claimed_again_after_a_crash(tmp_path: Path, second: str) -> None:
    server = Redis(tmp_path)
    store = await open_store(server.url())
    for name in ("s1", "s2"):
        await store.open_session(Session(id=name, lease_s=1000))
    [made] = await store.insert([new_job(store.clock, IdSource(random.Random(1)), chain=store.chain)])
    with redis.Redis.from_url(server.url()) as plain:
        plain.save()
    [ghost] = await store.claim(["default"], "s1", 1)
    server.kill()
    server.start()
    [job] = await store.claim(["default"], second, 1)
    assert (job.version, job.token) == (ghost.version, ghost.token)

    [answer] = await store.apply([done(store, ghost, "s1")])
    assert answer.outcome == "stale"
    [answer] = await store.apply([done(store, job, second)])
    assert answer.outcome == "applied"

    [found] = await store.audit()
    assert found.job.id == made.id
    assert store.chain.first_break(found.job, found.events) is None
    await store.close()
    server.stop()
