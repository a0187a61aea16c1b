"""The event of a claim, derived from a row: the same as if it had been written."""

from __future__ import annotations

import random

import msgspec
import pytest

from mainstay.lifecycle import JOB, UNIT, Chain, Move, apply
from mainstay.model import IdSource
from mainstay.stores.open_claim import CLAIMED_FROM, claim_body, claim_event
from mainstay.testing import VirtualClock, new_job


@pytest.mark.parametrize("table", [JOB, UNIT])
def test_a_claim_is_made_from_one_state_only(table: object) -> None:
    assert table.named("claimable") == (CLAIMED_FROM,)  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", [None, b"k" * 32])
def test_the_derived_event_is_the_one_a_writer_would_have_sealed(key: bytes | None) -> None:
    clock, chain = VirtualClock(), Chain(key) if key else Chain()
    job = new_job(clock, IdSource(random.Random(1)), chain=chain).job
    clock.advance(5)
    move = Move(to="running", fields={"session": "s1", "token": job.token + 1, "claimed_ms": clock.now_ms()})
    written = apply(job, move, now_ms=clock.now_ms(), actor="s1", chain=chain)
    row = written.job

    digest = chain.digest(job.head, claim_body(row.id, row.version, row.claimed_ms, row.session, row.token))
    derived = claim_event(msgspec.structs.replace(row, head=digest))

    [event] = written.events
    assert (derived, row.head) == (event, digest)
