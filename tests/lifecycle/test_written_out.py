"""The moves that are written out come to exactly what the general machine comes to."""

from __future__ import annotations

import pytest

from mainstay.lifecycle import Chain, Move, apply, claim, succeed
from mainstay.model import ErrorInfo, Options
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


@pytest.mark.parametrize(
    ("parent", "status"),
    [
        (None, "running"),
        (None, "cancelling"),
        (None, "succeeded"),
        ("018bcfe5-6800-7000-8000-00000000000f", "running"),
        ("018bcfe5-6800-7000-8000-00000000000f", "succeeded"),
    ],
)
@pytest.mark.parametrize("keep_s", [None, 60.0])
@pytest.mark.parametrize("started_ms", [None, 4_000])
def test_a_success_is_the_move_to_succeeded(
    parent: str | None, status: str, keep_s: float | None, started_ms: int | None
) -> None:
    job = a_job(
        status,
        parent=parent,
        version=7,
        token=3,
        session=None if status == "succeeded" else "s1",
        claimed_ms=3_000,
        started_ms=3_500,
        settled_ms=2_000 if status == "succeeded" else None,
        expires_ms=99_000,
        reason="asked to stop",
        error=ErrorInfo(type="ValueError", message="the attempt before"),
        options=Options(keep_s=keep_s),
    )
    fields = {"result": b"x", "starts": 2, "error": None}
    details = None if started_ms is None else {"started_ms": started_ms}

    general = apply(job, Move(to="succeeded", details=details, fields=fields), now_ms=5_000, actor="s1", chain=Chain())
    written_out = succeed(job, result=b"x", starts=2, started_ms=started_ms, now_ms=5_000, actor="s1", chain=Chain())

    assert written_out == general
