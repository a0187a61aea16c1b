"""The parts of the simulation that need no world."""

from __future__ import annotations

import random
from typing import get_args

from sim.faults import FaultKind, draw_faults
from sim.linearizability import Operation, is_linearizable
from sim.shrink import shrink


def put_once(state: str, request: str) -> tuple[str, str]:
    """An object that keeps the first value it is given and answers with it."""
    state = state or request
    return state, state


def test_a_history_in_which_one_value_wins_is_linearizable() -> None:
    history = [Operation("a", 0, "b", 3), Operation("b", 1, "b", 2)]

    assert is_linearizable(history, put_once, "")


def test_two_winners_are_not_linearizable() -> None:
    history = [Operation("a", 0, "a", 3), Operation("b", 1, "b", 2)]

    assert not is_linearizable(history, put_once, "")


def test_an_answer_from_before_an_operation_began_is_not_linearizable() -> None:
    history = [Operation("a", 0, "b", 1), Operation("b", 2, "b", 3)]

    assert not is_linearizable(history, put_once, "")


def test_an_operation_without_an_answer_may_have_taken_effect_or_not() -> None:
    assert is_linearizable([Operation("a", 0), Operation("b", 1, "a", 2)], put_once, "")
    assert is_linearizable([Operation("a", 0), Operation("b", 1, "b", 2)], put_once, "")


def test_an_operation_without_an_answer_cannot_take_effect_before_it_was_called() -> None:
    assert not is_linearizable([Operation("b", 0, "a", 1), Operation("a", 2)], put_once, "")


def test_faults_are_over_before_the_end_and_the_same_for_a_seed() -> None:
    drawn = draw_faults(random.Random(3), ["a", "b"], count=200, until_s=60)

    assert drawn == draw_faults(random.Random(3), ["a", "b"], count=200, until_s=60)
    assert all(fault.at_s + fault.for_s <= 60.01 for fault in drawn)
    assert {fault.kind for fault in drawn} == set(get_args(FaultKind))


def test_shrinking_keeps_what_is_needed_together_and_bounds_its_runs() -> None:
    runs = []

    def fails(parts: list[int]) -> bool:
        runs.append(parts)
        return {2, 9, 17} <= set(parts)

    assert shrink(list(range(20)), fails) == [2, 9, 17]
    assert len(runs) < 200
    assert shrink([1, 2, 3], lambda parts: True) == []
