"""Which session gets a unit, how long its confirmation is awaited, and when to give up."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, strategies as st

from mainstay.control import (
    ACK_WINDOW_MS,
    ask_again,
    assign_unit,
    budget_spent,
    given_back_by,
    may_assign,
    open_nodes,
    take_unit_back,
)
from mainstay.control.rules.attempts import snooze
from mainstay.control.rules.placement import OUT_MS
from mainstay.lifecycle import Chain, Move, apply
from mainstay.model import Job, Offer, Session
from mainstay.testing import a_job

NOW_MS = 1_700_000_000_000


def a_session(node: str = "n1", number: int = 1, **fields: Any) -> Session:
    return Session(id=f"{node}.{number:032x}", node=node, started_ms=NOW_MS - 1000, beat_ms=NOW_MS, **fields)


def a_unit(status: str = "pending", **fields: Any) -> Job:
    return a_job(status, parent="018bcfe5-6800-7000-8000-000000000001", unit="node/n1", kind="node", **fields)


def test_the_newest_session_of_a_node_gets_its_work() -> None:
    old, new = a_session(number=9), msgspec.structs.replace(a_session(number=1), started_ms=NOW_MS)
    assert open_nodes([new, old], lease_ms=NOW_MS) == {"n1": new}


def test_sessions_that_are_dead_silent_or_draining_or_carry_no_node_get_no_work() -> None:
    sessions = [
        a_session("dead", dead=True),
        a_session("drains").drained(NOW_MS, "me"),
        msgspec.structs.replace(a_session("silent"), beat_ms=NOW_MS - 8001),
        a_session(""),
    ]
    assert open_nodes(sessions, lease_ms=NOW_MS) == {}


def test_a_standing_session_is_present_however_long_it_is_silent() -> None:
    silent = msgspec.structs.replace(a_session(standing=True), beat_ms=0)
    assert open_nodes([silent], lease_ms=NOW_MS) == {"n1": silent}


def test_an_earlier_session_gets_the_work_while_the_newest_drains() -> None:
    old, new = a_session(number=1), msgspec.structs.replace(a_session(number=2), started_ms=NOW_MS)
    assert open_nodes([old, new.drained(NOW_MS, "me")], lease_ms=NOW_MS) == {"n1": old}


def test_a_unit_is_not_assigned_before_its_time_or_to_a_program_without_its_job() -> None:
    unit = a_unit(due_ms=NOW_MS + 1)
    assert not may_assign(unit, a_session(), now_ms=NOW_MS)
    assert may_assign(unit, a_session(), now_ms=NOW_MS + 1)
    assert not may_assign(unit, a_session(offer=Offer(tasks={})), now_ms=NOW_MS + 1)


def test_an_assignment_has_the_next_token_and_a_window() -> None:
    moved = apply(
        a_unit(token=4), *assign_unit(a_unit(), a_session(), now_ms=NOW_MS), now_ms=NOW_MS, actor="a", chain=Chain()
    )
    assert moved.job.session == a_session().id
    assert moved.job.expires_ms == NOW_MS + ACK_WINDOW_MS


def test_a_unit_that_is_taken_back_is_pending_and_counts_as_a_release_not_as_a_loss() -> None:
    unit = a_unit("dispatched", session="n1.1", claimed_ms=NOW_MS, expires_ms=NOW_MS + ACK_WINDOW_MS)
    moved = apply(unit, *take_unit_back(unit), now_ms=NOW_MS, actor="a", chain=Chain())
    assert (moved.job.status, moved.job.releases, moved.job.losses) == ("pending", 1, 0)


@given(releases=st.integers(0, 20), losses=st.integers(0, 20))
def test_a_unit_is_assigned_at_most_five_times_after_refusals_and_three_after_losses(
    releases: int, losses: int
) -> None:
    unit = a_unit(token=releases + losses, releases=releases + losses, losses=losses, changed_ms=NOW_MS - 60_000)
    assert (budget_spent(unit) is None) == (releases < 5 and losses < 3)
    assert may_assign(unit, a_session(), now_ms=NOW_MS) == (releases < 5 and losses < 3)


@given(snoozes=st.integers(0, 20))
def test_an_attempt_that_postpones_itself_uses_up_no_budget(snoozes: int) -> None:
    unit = a_unit()
    for number in range(1, snoozes + 1):
        running = msgspec.structs.replace(unit, status="running", session="n1.1", token=number)
        unit = apply(running, *snooze(running, 1, None, now_ms=NOW_MS), now_ms=NOW_MS, actor="a", chain=Chain()).job
    assert budget_spent(unit) is None


def test_only_the_session_that_gave_a_unit_back_is_not_asked_for_a_while() -> None:
    old, new = a_session(number=1), a_session(number=2)
    unit = a_unit(token=1, releases=1, due_ms=NOW_MS - 60_000, changed_ms=NOW_MS)
    assert not may_assign(unit, old, now_ms=NOW_MS, given_back_by=old.id)
    assert may_assign(unit, old, now_ms=NOW_MS + OUT_MS, given_back_by=old.id)
    assert may_assign(unit, new, now_ms=NOW_MS, given_back_by=old.id)


def test_the_events_of_a_unit_name_the_session_that_gave_it_back() -> None:
    unit = a_unit()
    given = apply(unit, *assign_unit(unit, a_session(), now_ms=NOW_MS), now_ms=NOW_MS, actor="a", chain=Chain())
    asked = apply(given.job, *ask_again(given.job, now_ms=NOW_MS), now_ms=NOW_MS, actor="a", chain=Chain())
    back = apply(asked.job, *take_unit_back(asked.job), now_ms=NOW_MS, actor="a", chain=Chain())
    assert given_back_by([*given.events, *asked.events]) == ""
    assert given_back_by([*given.events, *asked.events, *back.events]) == a_session().id
    failed = [Move(to="running"), Move(to="failed"), Move(to="pending")]
    again = apply(given.job, *failed, now_ms=NOW_MS, actor="a", chain=Chain())
    assert given_back_by([*given.events, *again.events]) == ""
