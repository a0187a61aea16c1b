"""The stored form of a file: what does not belong to its digest, or unpacks to too much, is refused while unpacking."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, strategies as st

from mainstay.cluster.bundles import BundleLimits
from mainstay.cluster.bundles.packed import pack_file, unpack_file
from mainstay.errors import BundleCorrupt, InvalidInput

LIMITS = BundleLimits()


class Counted(io.BytesIO):
    written = 0

    def write(self, piece) -> int:
        self.written += len(piece)
        return super().write(piece)


def digest_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def packed(tmp_path: Path, body: bytes) -> bytes:
    (tmp_path / "source").write_bytes(body)
    pack_file(tmp_path / "source", tmp_path / "draft", digest=digest_of(body), limits=LIMITS)
    return (tmp_path / "draft").read_bytes()


def unpacked(body: bytes, digest: str, size: int | None, target: io.BytesIO | None = None) -> bytes:
    target = target or io.BytesIO()
    unpack_file(io.BytesIO(body), len(body), target, digest=digest, size=size, limits=LIMITS, path="a.py")
    return target.getvalue()


@given(st.one_of(st.binary(max_size=2000), st.integers(0, 10**6).map(bytes)))
def test_content_comes_back_whatever_it_is(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    stored = packed(tmp_path_factory.mktemp("packed"), body)

    assert unpacked(stored, digest_of(body), len(body)) == body
    assert len(body) <= len(stored) * LIMITS.ratio
    assert len(stored) <= len(body) + 1


def test_code_is_compressed(tmp_path: Path) -> None:
    body = Path(__file__).read_bytes()

    assert len(packed(tmp_path, body)) < len(body) / 2


def test_a_bomb_is_refused_before_it_fills_the_disk() -> None:
    size = 200 * 2**20
    bomb = b"\x01" + zstandard.ZstdCompressor().compress(bytes(size))
    target = Counted()

    with pytest.raises(BundleCorrupt, match=r"a\.py .* more than 100 times its packed size"):
        unpacked(bomb, "0" * 64, size, target)
    assert target.written <= 100 * len(bomb)
    target = Counted()
    with pytest.raises(BundleCorrupt, match="more than its 10 bytes"):
        unpacked(bomb, "0" * 64, 10, target)
    assert target.written == 0


@pytest.mark.parametrize("body", [b"print(1)\n" * 50, bytes(range(256))], ids=["compressed", "plain"])
def test_every_flipped_byte_and_every_cut_is_refused(tmp_path: Path, body: bytes) -> None:
    stored, digest = packed(tmp_path, body), digest_of(body)

    for at in range(len(stored)):
        damaged = stored[:at] + bytes([stored[at] ^ 0xFF]) + stored[at + 1 :]
        try:
            content = unpacked(damaged, digest, len(body))
        except BundleCorrupt:
            continue
        assert content == body  # a byte of the frame that means nothing
    for end in range(len(stored)):
        try:
            content = unpacked(stored[:end], digest, len(body))
        except BundleCorrupt:
            continue
        assert content == body


def test_a_file_that_changed_since_it_was_collected_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("changed")

    with pytest.raises(InvalidInput, match=r"a\.py: the file has changed"):
        pack_file(tmp_path / "a.py", tmp_path / "draft", digest=digest_of(b"before"), limits=LIMITS)
