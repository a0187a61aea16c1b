"""The tables themselves: they are the contract, so the test has its own copy of it."""

from __future__ import annotations

import pytest

from mainstay.lifecycle import JOB, UNIT, State, Table, table_of
from mainstay.lifecycle.diagram import FLAG_MEANINGS

# state: (flags, what it may become), word for word from the design
JOB_CONTRACT = {
    "scheduled": ("waiting", "pending failed timed_out quarantined cancelled skipped"),
    "pending": ("claimable", "running scheduled failed timed_out quarantined cancelled skipped"),
    "running": (
        "holds",
        "finalizing validating succeeded failed timed_out quarantined cancelling cancelled skipped pending",
    ),
    "finalizing": ("holds", "validating succeeded failed cancelling timed_out skipped"),
    "validating": ("holds", "succeeded partial failed cancelling timed_out"),
    "cancelling": ("holds stopping", "cancelled succeeded"),
    "failed": ("settled", "scheduled pending quarantined cancelled"),
    "partial": ("settled", "pending validating succeeded cancelled"),
    "timed_out": ("settled", "scheduled pending quarantined cancelled"),
    "quarantined": ("settled", "pending cancelled"),
    "succeeded": ("settled final", ""),
    "cancelled": ("settled final", ""),
    "skipped": ("settled final", ""),
}
UNIT_CONTRACT = {
    "pending": ("claimable", "dispatched running failed skipped cancelled"),
    "dispatched": ("holds", "running pending cancelled timed_out"),
    "running": ("holds", "succeeded failed timed_out cancelled skipped pending"),
    "failed": ("settled", "pending"),
    "timed_out": ("settled", "pending"),
    "succeeded": ("settled", "pending"),
    "cancelled": ("settled final", ""),
    "skipped": ("settled final", ""),
}


@pytest.mark.parametrize(("table", "contract"), [(JOB, JOB_CONTRACT), (UNIT, UNIT_CONTRACT)], ids=["job", "unit"])
def test_the_table_is_the_one_that_was_designed(table: Table, contract: dict[str, tuple[str, str]]) -> None:
    declared = {s.name: (" ".join(s.flags), frozenset(s.next)) for s in table.states.values()}

    assert declared == {name: (flags, frozenset(to.split())) for name, (flags, to) in contract.items()}


def test_jobs_start_pending_or_scheduled_and_units_pending() -> None:
    assert (JOB.start, UNIT.start) == (("pending", "scheduled"), ("pending",))


def test_a_row_with_a_parent_follows_the_table_of_units() -> None:
    assert table_of(None) is JOB
    assert table_of("018bcfe5-6800-7000-8000-000000000001") is UNIT


@pytest.mark.parametrize("table", [JOB, UNIT], ids=repr)
def test_every_state_can_be_reached_from_the_start(table: Table) -> None:
    reached, todo = set(), list(table.start)
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += table.states[name].next

    assert reached == set(table.states)


@pytest.mark.parametrize("table", [JOB, UNIT], ids=repr)
def test_every_state_can_still_reach_a_final_one(table: Table) -> None:
    safe = set(table.named("final"))
    while more := {s.name for s in table.states.values() if s.name not in safe and safe & set(s.next)}:
        safe |= more

    assert safe == set(table.states)


def test_states_are_found_by_flag_in_the_order_of_the_table() -> None:
    assert JOB.named("holds") == ("running", "finalizing", "validating", "cancelling")
    assert JOB.named("claimable") == ("pending",)
    assert UNIT.named("holds") == ("dispatched", "running")


def test_an_unknown_name_has_no_state_and_allows_nothing() -> None:
    assert JOB.get("hibernating") is None
    assert not JOB.allows("hibernating", "pending")
    assert not JOB.allows("pending", "hibernating")


@pytest.mark.parametrize(
    "state",
    [
        State(name="a", meaning="leads nowhere known", next=("nowhere",)),
        State(name="a", meaning="final but moves on", next=("a",), settled=True, final=True),
        State(name="a", meaning="final but not settled", final=True),
    ],
    ids=lambda state: state.meaning,
)
def test_a_table_declared_wrongly_is_refused_when_it_is_made(state: State) -> None:
    with pytest.raises(AssertionError, match="declared wrongly"):
        Table("toy", start=("a",), states=(state,))


def test_every_flag_is_explained() -> None:
    flags = {flag for table in (JOB, UNIT) for state in table.states.values() for flag in state.flags}

    assert flags == set(FLAG_MEANINGS)
