"""What is kept of a run with its job: all of it, or as much as there is room for."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.load import works
from mainstay.load.stats.model import Summary
from mainstay.load.works import stored
from tests.report.load.runs import a_summary


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("room", ["for all", "for one curve", "for none"])
def test_what_there_is_no_room_for_is_left_out_curves_first(
    packed: bool, room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = a_summary()
    slim = msgspec.structs.replace(whole, points=[msgspec.structs.replace(one, by_step={}) for one in whole.points])
    bare = msgspec.structs.replace(whole, points=[], distribution=[], response_distribution=[])
    sizes = [len(msgspec.msgpack.encode(one)) for one in (whole, slim, bare)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(whole.points) > 1
    wanted, most = {"for all": (whole, sizes[0]), "for one curve": (slim, sizes[1]), "for none": (bare, sizes[1] - 1)}[
        room
    ]
    monkeypatch.setattr(works, "_MOST_BYTES", most)

    if packed:
        points = [msgspec.Raw(msgspec.msgpack.encode(point)) for point in whole.points]
        found = stored(msgspec.structs.replace(whole, points=[]), points)
    else:
        found = stored(whole)

    assert msgspec.msgpack.decode(found, type=Summary) == wanted
