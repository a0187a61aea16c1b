"""The moves that are written out come to exactly what the general machine comes to."""

from __future__ import annotations

import pytest

from mainstay.lifecycle import Chain, Move, apply, claim, completion
from mainstay.model import ErrorInfo, Job, Options
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
    written_out = apply(job, completion(b"x", starts=2, started_ms=started_ms), now_ms=5_000, actor="s1", chain=Chain())

    assert (written_out.job, written_out.events) == (general.job, general.events)
    assert written_out.kind == ("complete" if status == "running" else general.kind)


#: what a store may take for granted about a `complete`: the row changes in these columns and no other
COMPLETED = {
    "status",
    "reason",
    "version",
    "session",
    "starts",
    "changed_ms",
    "claimed_ms",
    "started_ms",
    "settled_ms",
    "expires_ms",
    "error",
    "result",
    "head",
    "lane",
}


@pytest.mark.parametrize("parent", [None, "018bcfe5-6800-7000-8000-00000000000f"])
def test_a_completion_changes_what_its_kind_says_and_nothing_else(parent: str | None) -> None:
    job = a_job(
        "running",
        parent=parent,
        version=7,
        token=3,
        session="s1",
        claimed_ms=3_000,
        started_ms=3_500,
        expires_ms=99_000,
        reason="given back",
        error=ErrorInfo(type="ValueError", message="the attempt before"),
        failures=1,
    )

    moved = apply(job, completion(b"x", starts=2, started_ms=3_500), now_ms=5_000, actor="s1", chain=Chain())

    done = moved.job
    assert moved.kind == "complete"
    assert {name for name in Job.__struct_fields__ if getattr(done, name) != getattr(job, name)} <= COMPLETED
    assert (done.status, done.version, done.result, done.starts) == ("succeeded", 8, b"x", 2)
    assert (done.settled_ms, done.changed_ms, done.lane) == (5_000, 5_000, 0)
    assert (done.session, done.claimed_ms, done.started_ms, done.reason, done.error) == (None, None, None, None, None)
    [event] = moved.events
    assert (event.job_id, event.seq, event.at_ms, event.source, event.to) == (job.id, 8, 5_000, "running", "succeeded")
    assert (event.actor, event.reason, event.token, event.flag, event.digest) == ("s1", None, 3, "", done.head)
    assert event.details is not None
    assert "\n" not in event.details


def test_only_its_holder_completes_a_running_job() -> None:
    held = a_job("running", version=7, token=3, session="s1", claimed_ms=3_000)
    stopping = a_job("cancelling", version=7, token=3, session="s1", claimed_ms=3_000)

    def kind(job: Job, actor: str) -> str:
        move = completion(None, starts=1, started_ms=None)
        return apply(job, move, now_ms=5_000, actor=actor, chain=Chain()).kind

    assert kind(held, "s1") == "complete"
    assert kind(held, "operator") == "move"
    assert kind(stopping, "s1") == "move"


def test_a_note_is_what_leaves_the_status_as_it_is() -> None:
    job = a_job("pending", version=7)
    note = Move(to="pending", reason="seen", flag="note")

    def kind(*moves: Move) -> str:
        return apply(job, *moves, now_ms=5_000, actor="operator", chain=Chain()).kind

    assert kind(note) == "note"
    assert kind(note, Move(to="cancelled")) == "move"
    assert kind(Move(to="pending")) == "note"
