"""Manifests come from other machines: one bundle has one digest, and no path leaves its folder."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath

import msgspec
import pytest
from hypothesis import given, strategies as st

from mainstay.bundles import PART_BYTES, BundleFile, BundleLimits, BundleManifest, read_manifest
from mainstay.bundles.manifest import check_bundle_path
from mainstay.errors import BundleCorrupt, InvalidInput, PayloadTooLarge

EMPTY = hashlib.sha256(b"").hexdigest()
parts = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=8)
paths = st.lists(parts, min_size=1, max_size=4).map("/".join)
digests = st.binary(max_size=4).map(lambda body: hashlib.sha256(body).hexdigest())


@st.composite
def manifests(draw: st.DrawFn) -> BundleManifest:
    names = draw(st.sets(st.from_regex(r"[a-z]{1,3}\.py", fullmatch=True), max_size=6))
    files = [
        BundleFile(path=f"pkg/{name}", size=draw(st.integers(0, 1000)), sha256=draw(digests), data=draw(st.booleans()))
        for name in sorted(names)
    ]
    return BundleManifest(name="pkg", target="pkg.a:app", files=tuple(files))


def one_file(path: str, *, size: int = 0, **changed) -> BundleManifest:
    split = (EMPTY,) * -(-size // PART_BYTES) if size > PART_BYTES else ()
    file = BundleFile(**{"path": path, "size": size, "sha256": EMPTY, "split": split, **changed})
    return BundleManifest(name="shop", target="shop:app", files=(file,))


@given(manifests())
def test_a_manifest_is_read_back_as_it_was_written(manifest: BundleManifest) -> None:
    assert read_manifest(manifest.digest, manifest.canonical) == manifest


@given(manifests(), st.data())
def test_a_manifest_with_a_flipped_bit_is_refused(manifest: BundleManifest, data: st.DataObject) -> None:
    body = bytearray(manifest.canonical)
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(BundleCorrupt):
        read_manifest(manifest.digest, bytes(body))


@given(paths)
def test_an_accepted_path_stays_below_its_folder(path: str) -> None:
    try:
        check_bundle_path(path)
    except InvalidInput:
        return
    place = PurePosixPath("/srv/cache", path)
    assert str(place) == f"/srv/cache/{path}"
    assert ".." not in place.parts
    assert len(place.parts) > 3


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/.", "", "a\\..\\b", "C:x", "a\x00b", "a\nb",
        ".git/config", "a/__pycache__/b.pyc", "a/.GIT/x", ".mainstay-bundle", "x" * 600, "x" * 300,
        "mainstay/app.py", "Mainstay.py", "\udc80",
    ],
)  # fmt: skip
def test_a_path_that_could_do_harm_is_refused_by_name(path: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be in a bundle"):
        check_bundle_path(path)
    # also from the wire
    body = msgspec.json.encode(
        {
            "form": "mainstay bundle 1",
            "name": "x",
            "target": "x:app",
            "files": [{"path": path.encode(errors="replace").decode(), "size": 0, "sha256": EMPTY}],
        }
    )
    if path != "\udc80":
        with pytest.raises(BundleCorrupt, match="cannot be read"):
            read_manifest(hashlib.sha256(body).hexdigest(), body)


@pytest.mark.parametrize("pair", [("a.py", "A.py"), ("a", "a/b"), ("a.py", "a.py"), ("é", "e\u0301"), ("A", "a/b")])
def test_two_files_in_one_place_are_refused(pair: tuple[str, str]) -> None:
    files = tuple(BundleFile(path=path, size=0, sha256=EMPTY) for path in sorted(pair))

    with pytest.raises(InvalidInput, match="files:"):
        BundleManifest(name="shop", target="shop:app", files=files)


def test_another_writing_of_the_same_manifest_is_refused() -> None:
    body = one_file("shop.py").canonical + b"\n"

    with pytest.raises(BundleCorrupt, match="canonical"):
        read_manifest(hashlib.sha256(body).hexdigest(), body)


def test_code_above_the_limit_is_refused_with_the_largest_file_and_data_is_not_code() -> None:
    code, data = one_file("shop.py", size=60 * 2**20), one_file("shop.py", size=60 * 2**20, data=True)

    with pytest.raises(PayloadTooLarge, match=r"The largest file is shop\.py"):
        read_manifest(code.digest, code.canonical)
    assert read_manifest(data.digest, data.canonical) == data
    with pytest.raises(BundleCorrupt, match="manifest has"):
        read_manifest(data.digest, data.canonical, BundleLimits(manifest_bytes=10))


@pytest.mark.parametrize(
    ("size", "split"),
    [(1, (EMPTY,)), (PART_BYTES, (EMPTY,)), (PART_BYTES + 1, ()), (PART_BYTES + 1, (EMPTY,)), (2**52, (EMPTY,) * 3)],
)
def test_parts_that_do_not_make_up_their_file_are_refused(size: int, split: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"shop\.py: it has"):
        BundleFile(path="shop.py", size=size, sha256=EMPTY, split=split)


def test_too_many_files_are_refused_with_the_limit() -> None:
    files = tuple(BundleFile(path=f"a{number}", size=0, sha256=EMPTY) for number in range(3))
    manifest = BundleManifest(name="shop", target="shop:app", files=files)

    with pytest.raises(PayloadTooLarge, match="shop has 3 files; at most 2 are allowed"):
        read_manifest(manifest.digest, manifest.canonical, BundleLimits(files=2))
