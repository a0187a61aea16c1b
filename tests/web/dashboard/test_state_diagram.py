from __future__ import annotations

import pytest

from mainstay.lifecycle import JOB, UNIT, Event
from mainstay.lifecycle.states import Table
from mainstay.web.dashboard.state_diagram import drawn


def moved(*states: str, flags: dict[int, str] | None = None) -> list[Event]:
    """The events of a job that went through these states."""
    sources = (None, *states)
    return [
        Event("job", seq + 1, seq, sources[seq], to, "ann", None, 0, (flags or {}).get(seq, ""), None, b"")
        for seq, to in enumerate(states)
    ]


@pytest.mark.parametrize("table", [JOB, UNIT], ids=["job", "unit"])
def test_every_state_and_every_move_of_the_table_is_drawn_once(table: Table) -> None:
    found = drawn(table, [], table.start[0])
    assert sorted(box.name for box in found.boxes) == sorted(table.states)
    moves = [(arrow.source, arrow.to) for arrow in found.arrows]
    assert sorted(moves) == sorted((state.name, to) for state in table.states.values() for to in state.next)


def test_no_two_states_lie_on_each_other_and_all_are_within_the_drawing() -> None:
    found = drawn(JOB, [], "pending")
    places = {(box.x, box.y) for box in found.boxes}
    assert len(places) == len(JOB.states)
    assert all(box.x + found.box_width <= found.width for box in found.boxes)
    assert all(box.y + found.box_height <= found.height for box in found.boxes)


def test_the_moves_that_were_made_have_the_numbers_of_their_order() -> None:
    events = moved("pending", "running", "failed", "pending", "running", "succeeded")
    found = drawn(JOB, events, "succeeded")
    steps = {(arrow.source, arrow.to): arrow.steps for arrow in found.arrows if arrow.steps}
    assert steps == {
        ("pending", "running"): "1, 4",
        ("running", "failed"): "2",
        ("failed", "pending"): "3",
        ("running", "succeeded"): "5",
    }
    assert found.about == "It was pending, then running, then failed, then pending, then running, then succeeded."


def test_a_note_is_no_move() -> None:
    found = drawn(JOB, moved("pending", "pending", "running", flags={1: "note"}), "running")
    assert [arrow.steps for arrow in found.arrows if arrow.steps] == ["1"]


def test_a_move_against_the_table_is_drawn_as_forced() -> None:
    found = drawn(JOB, moved("pending", "running", "partial"), "partial")
    (forced,) = [arrow for arrow in found.arrows if arrow.forced]
    assert (forced.source, forced.to) == ("running", "partial")


@pytest.mark.parametrize("to", ["cancelled", "skipped", "failed", "succeeded"])
def test_no_number_of_a_move_stands_on_a_state(to: str) -> None:
    found = drawn(JOB, moved("pending", to), to)
    (arrow,) = [each for each in found.arrows if each.steps]
    assert not [
        box.name
        for box in found.boxes
        if 0 <= arrow.x - box.x <= found.box_width and 0 <= arrow.y - box.y <= found.box_height
    ]


def test_a_state_that_only_a_newer_version_knows_spoils_nothing() -> None:
    found = drawn(JOB, moved("pending", "paused", "running"), "paused")
    assert not any(box.now for box in found.boxes)
