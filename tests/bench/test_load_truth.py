"""What is kept of the runs that ask whether load tests tell the truth and keep their memory."""

from __future__ import annotations

import json

import msgspec
import pytest

from bench import load_accuracy, load_memory
from bench.load_accuracy import Accuracy, Finding
from bench.load_memory import Memory


def finding(seen: float, *, most: float = 0.02) -> Finding:
    return Finding(what="p50, s", processes=1, truth=100.0, seen=seen, most=most)


@pytest.mark.parametrize(("seen", "good"), [(101.9, True), (98.1, True), (102.1, False), (97.9, False)])
def test_a_number_may_be_off_by_so_much_to_either_side(seen: float, good: bool) -> None:
    assert finding(seen).good is good


def test_one_number_that_is_off_is_enough_and_none_at_all_is_not_good() -> None:
    found = Accuracy(at="", machine={}, versions={}, findings=[finding(101.0), finding(100.0, most=0.0)])
    assert found.good

    found.findings.append(finding(103.0))
    assert not found.good
    assert not Accuracy(at="", machine={}, versions={}).good


def test_the_slope_is_that_of_the_line_through_what_followed_when_it_had_settled() -> None:
    rising = [0.0] * 20 + [100.0 + 0.01 * second for second in range(80)]
    found = Memory(at="", machine={}, versions={}, seconds=100, users=1, samples={"a": rising, "b": [5.0] * 100})

    assert found.slope("a") == pytest.approx(36.0)
    assert found.slope("b") == 0.0


def test_the_runs_that_are_kept_say_what_they_came_to() -> None:
    accuracy = msgspec.json.decode(load_accuracy.KEPT.read_bytes(), type=Accuracy)
    memory = msgspec.json.decode(load_memory.KEPT.read_bytes(), type=Memory)

    assert json.loads(load_accuracy.KEPT.read_bytes())["good"] is accuracy.good is True
    assert json.loads(load_memory.KEPT.read_bytes())["flat"] is memory.flat
    assert set(memory.samples) == {"command", "generator 1", "generator 2"}
