"""What goes over the link: one line a message, whatever is in it."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.model import Settings
from mainstay.worker.messages import (
    Drain,
    FromEngine,
    Hello,
    Isolate,
    Pulsed,
    Retiring,
    StartClaiming,
    ToEngine,
    Unfit,
    line,
)

NASTY = "two\nlines, a nul \0, and a smile 🙂"


@pytest.mark.parametrize(
    ("message", "direction"),
    [
        (Hello(session="s", store_url=NASTY, settings=Settings.of(lease="9s"), queues=("a", "b")), FromEngine),
        (Retiring(NASTY), FromEngine),
        (Unfit(NASTY), FromEngine),
        (StartClaiming(), ToEngine),
        (Pulsed(session="s", known=True, cancelling=("x",)), ToEngine),
        (Drain(1.5), ToEngine),
        (Isolate(1.5), ToEngine),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_message_is_one_line_and_comes_out_as_it_went_in(
    message: FromEngine | ToEngine, direction: type[FromEngine | ToEngine]
) -> None:
    sent = line(message)

    assert sent.count(b"\n") == 1
    assert sent.endswith(b"\n")
    assert msgspec.json.decode(sent, type=direction) == message
