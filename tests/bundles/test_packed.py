"""The stored form of a part: what does not belong to its digest, or unpacks to too much, is refused while unpacking."""

from __future__ import annotations

import hashlib
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, strategies as st

from mainstay.bundles import BundleLimits
from mainstay.bundles.packed import pack, unpack
from mainstay.errors import BundleCorrupt

LIMITS = BundleLimits()


def digest_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def unpacked(body: bytes, digest: str, most: int) -> bytes:
    return unpack(body, digest=digest, most=most, limits=LIMITS, path="a.py")


@given(st.one_of(st.binary(max_size=2000), st.integers(0, 10**6).map(bytes)))
def test_content_comes_back_whatever_it_is(body: bytes) -> None:
    stored = pack(body, LIMITS)

    assert unpacked(stored, digest_of(body), len(body)) == body
    assert len(body) <= len(stored) * LIMITS.ratio
    assert len(stored) <= len(body) + 1


def test_code_is_compressed() -> None:
    body = Path(__file__).read_bytes()

    assert len(pack(body, LIMITS)) < len(body) / 2


def test_a_bomb_is_refused_before_it_fills_the_memory() -> None:
    size = 200 * 2**20
    bomb = b"\x01" + zstandard.ZstdCompressor().compress(bytes(size))

    tracemalloc.start()
    with pytest.raises(BundleCorrupt, match=r"a\.py .* more than 100 times its packed size"):
        unpacked(bomb, "0" * 64, size)
    with pytest.raises(BundleCorrupt, match="more than 10 bytes"):
        unpacked(bomb, "0" * 64, 10)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 200 * len(bomb) + 2**22 < size / 10


@pytest.mark.parametrize("body", [b"print(1)\n" * 50, bytes(range(256))], ids=["compressed", "plain"])
def test_every_flipped_byte_and_every_cut_is_refused(body: bytes) -> None:
    stored, digest = pack(body, LIMITS), digest_of(body)

    damaged = [stored[:at] + bytes([stored[at] ^ 0xFF]) + stored[at + 1 :] for at in range(len(stored))]
    for bad in [*damaged, *(stored[:end] for end in range(len(stored)))]:
        try:
            content = unpacked(bad, digest, len(body))
        except BundleCorrupt:
            continue
        assert content == body  # a byte of the frame that means nothing
