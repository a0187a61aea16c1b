"""The clock that moves only when told."""

from __future__ import annotations

from mainstay.testing import VirtualClock


def test_time_passes_only_when_told() -> None:
    clock = VirtualClock(5_000)
    assert (clock.now_ms(), clock.now_ms(), clock.lease_ms()) == (5_000, 5_000, 5_000)
    clock.advance(1.5)
    assert (clock.now_ms(), clock.lease_ms()) == (6_500, 6_500)


def test_leases_do_not_notice_a_set_wall_clock() -> None:
    clock = VirtualClock(5_000)
    clock.set_wall(1_000)
    assert (clock.now_ms(), clock.lease_ms()) == (1_000, 5_000)
