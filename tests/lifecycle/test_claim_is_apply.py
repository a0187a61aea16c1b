"""The written-out claim comes to exactly what the general machine comes to."""

from __future__ import annotations

import pytest

from mainstay.lifecycle import Chain, Move, apply, claim
from mainstay.model import Options
from mainstay.testing import a_job


@pytest.mark.parametrize("parent", [None, "018bcfe5-6800-7000-8000-00000000000f"])
@pytest.mark.parametrize("start_by_ms", [None, 90_000])
def test_a_claim_is_the_move_to_running_under_the_next_token(parent: str | None, start_by_ms: int | None) -> None:
    job = a_job(
        "pending", parent=parent, version=7, token=3, reason="given back", options=Options(start_by_ms=start_by_ms)
    )
    taken = {"token": 4, "session": "s1", "claimed_ms": 5_000}

    general = apply(job, Move(to="running", fields=taken), now_ms=5_000, actor="s1", chain=Chain())

    assert claim(job, session="s1", now_ms=5_000, chain=Chain()) == general
