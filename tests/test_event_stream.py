"""The parser of server-sent events: any pieces, any line ending, and a limit."""

from __future__ import annotations

import pytest

from mainstay.errors import CallFailed
from mainstay.event_stream import EventParser, ServerSentEvent


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_events_are_the_same_in_whatever_pieces_they_come(end: str) -> None:
    text = "\ufeff" + "data: a|data:b||:c|id: 1|event: x|data|||data: z||".replace("|", end)
    expected = [
        ServerSentEvent(data="a\nb"),
        ServerSentEvent(event="x", data="", id="1"),
        ServerSentEvent(data="z", id="1"),
    ]

    for size in range(1, len(text) + 1):
        parser = EventParser()
        got = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
        assert got == expected, size


def test_a_line_without_end_is_refused() -> None:
    parser = EventParser()
    parser.feed("data: ")

    with pytest.raises(CallFailed, match="more than 1048576 characters in a line"):
        parser.feed("x" * 1024 * 1024)
