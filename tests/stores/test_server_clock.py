"""The server's time, reckoned from what it said."""

from __future__ import annotations

import time

import pytest

from mainstay.stores.server_clock import ServerClock


class Steady:
    ms = 0.0

    def __call__(self) -> float:
        return self.ms


@pytest.fixture
def steady() -> Steady:
    return Steady()


@pytest.fixture
def clock(steady: Steady) -> ServerClock:
    return ServerClock(steady)


def test_the_server_is_taken_to_have_answered_half_way(clock: ServerClock, steady: Steady) -> None:
    clock.heard(1_000_000, sent=0, received=40)
    steady.ms = 40

    assert clock.now_ms() == clock.lease_ms() == 1_000_020


def test_it_goes_on_with_the_steady_time_of_this_machine(clock: ServerClock, steady: Steady) -> None:
    clock.heard(1_000_000, sent=0, received=0)
    steady.ms = 3_600_000

    assert clock.now_ms() == 4_600_000


def test_the_wall_clock_of_this_machine_never_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ServerClock()
    clock.heard(5_000_000, sent=clock.steady(), received=clock.steady())
    off = time.time_ns() + 3_600_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: off)
    monkeypatch.setattr(time, "time", lambda: off / 1e9)

    assert 5_000_000 <= clock.now_ms() < 5_010_000


def test_a_slow_answer_does_not_replace_a_quick_one(clock: ServerClock, steady: Steady) -> None:
    clock.heard(1_000_000, sent=0, received=2)
    clock.heard(1_001_400, sent=500, received=1500)
    steady.ms = 1500

    assert clock.now_ms() == 1_001_499


def test_a_quick_answer_replaces_a_slow_one(clock: ServerClock, steady: Steady) -> None:
    clock.heard(1_000_000, sent=0, received=1000)
    clock.heard(1_000_900, sent=1200, received=1202)
    steady.ms = 1201

    assert clock.now_ms() == 1_000_900


def test_an_answer_ages_so_a_slower_one_takes_its_place_in_time(clock: ServerClock, steady: Steady) -> None:
    clock.heard(1_000_000, sent=0, received=2)
    clock.heard(1_100_015, sent=100_000, received=100_020)  # within what ten seconds of drift may have made
    steady.ms = 100_010

    assert clock.now_ms() == 1_100_015


def test_a_server_whose_clock_was_set_is_believed_at_once(clock: ServerClock, steady: Steady) -> None:
    clock.heard(1_000_000, sent=0, received=2)
    clock.heard(500_000, sent=10, received=60)
    steady.ms = 35

    assert clock.now_ms() == 500_000
