"""The payload codec: sealed data is told apart from plain data, and never taken for it."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime

import msgspec
import pytest

from mainstay.control import decoded
from mainstay.control.payload import SEALED
from mainstay.errors import InvalidInput
from mainstay.task.codec import Sealer


class Xor:
    """A codec whose every sealing differs, like a real cipher's."""

    def __init__(self, key: int = 0x5A) -> None:
        self._key = key
        self._count = 0

    def encode(self, data: bytes) -> bytes:
        self._count += 1
        body = bytes(byte ^ self._key for byte in data)
        return self._count.to_bytes(4, "big") + zlib.crc32(data).to_bytes(4, "big") + body

    def decode(self, data: bytes) -> bytes:
        opened = bytes(byte ^ self._key for byte in data[8:])
        if zlib.crc32(opened) != int.from_bytes(data[4:8], "big"):
            raise ValueError("the seal is broken")
        return opened


@pytest.mark.parametrize("size", [0, 1, 2, 4, 8, 16, 300, 70_000])
def test_what_was_sealed_is_opened_again_whatever_its_size(size: int) -> None:
    sealer = Sealer(Xor())
    data = msgspec.msgpack.encode(b"x" * size)

    sealed = sealer.seal(data)

    assert sealed != data
    assert sealer.open(sealed, field="payload") == data


def test_sealed_data_is_still_data_to_the_store() -> None:
    found = decoded(Sealer(Xor()).seal(b"\x01"))

    assert isinstance(found, msgspec.msgpack.Ext)
    assert found.code == SEALED


@pytest.mark.parametrize(
    "value", [{}, None, "text", 7, datetime(2026, 3, 1, tzinfo=UTC), msgspec.msgpack.Ext(5, b"mine")]
)
def test_plain_data_stays_readable_with_a_codec(value: object) -> None:
    data = msgspec.msgpack.encode(value)

    assert Sealer(Xor()).open(data, field="payload") == data


def test_without_the_codec_sealed_data_is_refused_with_advice() -> None:
    sealed = Sealer(Xor()).seal(b"\x01")

    with pytest.raises(InvalidInput, match="payload: is sealed by a codec, but this app has none"):
        Sealer(None).open(sealed, field="payload")


def test_another_key_is_refused_with_what_the_codec_said() -> None:
    sealed = Sealer(Xor(1)).seal(b"\x01")

    with pytest.raises(InvalidInput, match="the codec cannot open it \\(ValueError: the seal is broken\\)"):
        Sealer(Xor(2)).open(sealed, field="payload")
