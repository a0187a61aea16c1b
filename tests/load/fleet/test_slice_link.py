"""What the leader takes of the windows of a slice."""

from __future__ import annotations

import pytest

from mainstay.bus import MemoryBusNetwork
from mainstay.clock import SystemClock
from mainstay.load.fleet.messages import SliceWindow
from mainstay.load.fleet.settings import FleetMember, FleetSettings
from mainstay.load.fleet.slice_link import SliceLink
from mainstay.load.stats.model import Window


@pytest.fixture
def windows() -> list[Window]:
    return []


@pytest.fixture
async def link(windows: list[Window]) -> SliceLink:
    async def leads() -> bool:
        return True

    link = SliceLink(
        MemoryBusNetwork().client("leader"),
        FleetMember(node="node-b", processes=1, token=4),
        job="job-1",
        number=0,
        epoch=0,
        settings=FleetSettings(),
        clock=SystemClock(),
        steady=lambda: 0.0,
        leads=leads,
        on_window=windows.append,
        on_change=lambda: None,
    )
    link.open(2, wall_s=10.0, at_s=0.0)
    return link


def part(number: int, *, token: int = 4, go: int = 2) -> SliceWindow:
    return SliceWindow(token=token, go=go, number=number, window=Window(bucket=100 + number))


async def test_a_window_is_taken_once_in_any_order(link: SliceLink, windows: list[Window]) -> None:
    taken = [link.take(part(number)) for number in (1, 0, 1, 3, 0, 3, 2)]

    assert taken == [True, True, False, True, False, False, True]
    assert [window.bucket for window in windows] == [101, 100, 103, 102]
    assert (link.windows.count, link.windows.repeated) == (4, 3)


async def test_windows_of_an_older_assignment_and_of_an_earlier_go_are_dropped(
    link: SliceLink, windows: list[Window]
) -> None:
    assert not link.take(part(0, token=3))
    assert not link.take(part(0, go=1))

    assert windows == []
