"""Bundles in the blobs of a cluster: each file and each manifest is stored once, at the address of its digest.

`bundles/sha256/DIGEST` holds the packed form; the digest is that of the content. A bundle is complete when its manifest
is stored, because the manifest is written last. Storing the same content again changes nothing, unless the stored bytes
are damaged: then they are replaced.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from ...errors import BundleCorrupt
from ...outputs import Blobs
from .collection import Bundle
from .manifest import BundleLimits, check_digest
from .packed import pack_file, unpack_file


def bundle_address(digest: str) -> str:
    """Where a file or a manifest is stored."""
    return f"bundles/sha256/{check_digest(digest)}"


async def publish_bundle(blobs: Blobs, bundle: Bundle, *, limits: BundleLimits | None = None) -> str:
    """Store a bundle and return its digest. Files that are stored already are checked, and not written again."""
    limits = limits or BundleLimits()
    with tempfile.TemporaryDirectory(prefix="mainstay-bundle-") as name:
        for digest, size, source in bundle_contents(bundle, Path(name)):
            if await _is_stored(blobs, digest, size, Path(name), limits):
                continue
            draft = Path(name, "packed")
            await asyncio.to_thread(pack_file, source, draft, digest=digest, limits=limits)
            await blobs.write(bundle_address(digest), draft)
    return bundle.digest


def bundle_contents(bundle: Bundle, scratch: Path) -> list[tuple[str, int, Path]]:
    """What a bundle stores, each once, with the manifest last: digest, size, file."""
    manifest = scratch / "manifest"
    manifest.write_bytes(bundle.manifest.canonical)
    contents = {file.sha256: (file.size, bundle.root / file.path) for file in bundle.manifest.files}
    contents.pop(bundle.digest, None)
    contents[bundle.digest] = (len(bundle.manifest.canonical), manifest)
    return [(digest, size, path) for digest, (size, path) in contents.items()]


async def save_packed(
    blobs: Blobs, digest: str, target: Path, limits: BundleLimits, *, size: int | None = None
) -> bool:
    """Copy a packed file to the disk and check it; False if it is not stored."""
    saved = await blobs.save(bundle_address(digest), target)
    if saved is None:
        return False
    await asyncio.to_thread(check_packed, digest, target, limits, size=size)
    return True


def check_packed(digest: str, packed: Path, limits: BundleLimits, *, size: int | None = None) -> None:
    """Refuse a packed file whose content does not have this digest."""
    with packed.open("rb") as file:
        unpack_file(file, packed.stat().st_size, None, digest=digest, size=size, limits=limits)


async def _is_stored(blobs: Blobs, digest: str, size: int, scratch: Path, limits: BundleLimits) -> bool:
    try:
        return await save_packed(blobs, digest, scratch / "stored", limits, size=size)
    except BundleCorrupt:
        return False


__all__ = ["bundle_address", "bundle_contents", "check_packed", "publish_bundle", "save_packed"]
