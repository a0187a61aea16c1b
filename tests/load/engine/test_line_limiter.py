"""What generators print is let through, within bounds."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings, strategies as st

from mainstay.load.engine.line_limiter import LONGEST_LINE, LimitedStream, LineLimiter, as_text


class Sieving:
    """A sieve whose seconds pass when they are told to."""

    def __init__(self, most: int) -> None:
        self.told: list[bytes] = []
        self.now = 0.0
        self.limiter = LineLimiter(self.told.append, most=most, now=lambda: self.now)


def test_the_first_lines_of_a_second_are_told_and_the_others_counted() -> None:
    one = Sieving(most=2)

    one.limiter.feed(b"a\nb\nc\nd\n")
    one.limiter.feed(b"e\n" * 12_343)
    one.limiter.tick()
    assert one.told == [b"a", b"b"]

    one.now = 1.0
    one.limiter.feed(b"f\n")
    assert one.told == [b"a", b"b", b"... and 12,345 more lines", b"f"]


def test_a_second_that_is_over_is_told_without_a_further_line() -> None:
    one = Sieving(most=1)
    one.limiter.feed(b"a\nb\n")

    one.now = 1.0
    one.limiter.tick()
    one.limiter.tick()

    assert one.told == [b"a", b"... and 1 more line"]


def test_what_has_no_end_of_line_is_told_in_the_end() -> None:
    one = Sieving(most=2)
    one.limiter.feed(b"a\nhal")
    one.limiter.feed(b"f")
    assert one.told == [b"a"]

    one.limiter.end()
    assert one.told == [b"a", b"half"]


def test_long_lines_are_cut_and_never_kept_whole() -> None:
    one = Sieving(most=2)
    for _ in range(50):
        one.limiter.feed(b"x" * LONGEST_LINE)
        assert len(one.limiter._rest) <= LONGEST_LINE + 1
    one.limiter.feed(b"\nshort\n")

    assert one.told == [b"x" * LONGEST_LINE + b"...", b"short"]


def test_last_words_are_told_in_full() -> None:
    one = Sieving(most=1)
    one.limiter.feed(b"a\nb\n")

    one.limiter.lift()
    one.limiter.feed(b"c\nd\n")

    assert one.told == [b"a", b"... and 1 more line", b"c", b"d"]


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=20), max_size=20), st.integers(1, 5))
def test_no_line_is_lost_however_the_stream_is_cut(pieces: list[bytes], most: int) -> None:
    one = Sieving(most=most)
    for piece in pieces:
        one.limiter.feed(piece)

    lines = b"".join(pieces).split(b"\n")[:-1]
    assert one.told == lines[:most]
    assert one.limiter.dropped == max(0, len(lines) - most)


def test_what_is_printed_is_written_at_once_in_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    stream = LimitedStream(writing)
    monkeypatch.setattr(stream.limiter, "_most", 2)
    text = as_text(stream)
    try:
        print("grüße", 5, file=text)
        assert os.read(reading, 100) == "grüße 5\n".encode()

        print("b\ud800", file=text)
        print("c", file=text)
        assert os.read(reading, 100) == b"b\\ud800\n"
        assert (text.fileno(), stream.limiter.dropped) == (writing, 1)
    finally:
        os.close(writing)
        os.close(reading)


def test_a_reader_that_is_gone_ends_nobody() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    text = as_text(LimitedStream(writing))
    try:
        print("to nobody", file=text)
    finally:
        os.close(writing)
