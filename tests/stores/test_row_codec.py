"""Options out and in, with the last few remembered."""

from __future__ import annotations

import msgspec

from mainstay.model import Options
from mainstay.stores.row_codec import OfOptions, OptionsCodec

CODEC: OptionsCodec[bytes] = OptionsCodec(msgspec.json.Encoder().encode, msgspec.json.Decoder(Options).decode)


def test_options_come_back_as_they_went() -> None:
    options = Options(tags=("red",), grace_s=3)
    assert CODEC.decode(CODEC.encode(options)) == options


def test_the_same_options_are_worked_on_once() -> None:
    made = []
    tags = OfOptions(lambda options: made.append(options) or options.tags)  # type: ignore[func-returns-value]
    options = Options(tags=("red",))
    assert [tags(options), tags(options)] == [("red",), ("red",)]
    assert made == [options]


def test_more_options_than_are_remembered_are_told_apart() -> None:
    many = [Options(tags=(f"tag{n}",)) for n in range(600)]
    stored = [CODEC.encode(options) for options in many]
    assert [CODEC.decode(each) for each in stored] == many
