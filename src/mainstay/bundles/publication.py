"""From a collected bundle to one that the nodes can use."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ..errors import BundleMissing, BusError, InvalidInput, Overloaded, PayloadTooLarge
from .bounded import for_each
from .collection import Bundle
from .manifest import BundleLimits, BundlePart
from .packed import pack
from .storage import PACKED_BYTES

#: parts that are asked about in one request: the manager reads them to check them
_ASKED = 32
#: parts that are sent at a time
_AT_ONCE = 4
_ROUNDS = 3
_TRIES = 60


class BundleTarget(Protocol):
    """Where a bundle is published: `BundleClient`, or the `BundleStorage` itself."""

    async def put(self, digest: str, packed: bytes) -> None: ...

    async def missing(self, digests: Sequence[str]) -> list[str]: ...

    async def begin(self, digest: str, *, by: str) -> None: ...

    async def commit(self, digest: str, *, name: str, by: str) -> list[str]: ...


class PublishResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a publication has sent."""

    digest: str
    name: str
    """that points to it now; empty: none"""
    target: str
    files: int
    bytes: int
    """of all files"""
    sent_parts: int
    sent_bytes: int
    """of the parts that were sent, before they were packed"""
    present_parts: int
    """parts that were stored already"""
    present_bytes: int


class PublishProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a publication is."""

    done_bytes: int
    """of all files: checked and present, or sent"""
    total_bytes: int


async def publish_bundle(
    target: BundleTarget,
    bundle: Bundle,
    *,
    name: str = "",
    by: str = "unknown",
    limits: BundleLimits | None = None,
    progress: Callable[[PublishProgress], None] = lambda _: None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> PublishResult:
    """Store a bundle, and point a name to it. Parts that are stored and intact are not sent."""
    limits = limits or BundleLimits()
    places = {part.sha256: (bundle.root / file.path, part) for file in bundle.manifest.files for part in file.parts}
    total = sum(part.size for _, part in places.values())
    sent: dict[str, int] = {}
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        progress(PublishProgress(done_bytes=min(done, total), total_bytes=total))

    async def send(digest: str) -> None:
        path, part = places[digest]
        await target.put(digest, await asyncio.to_thread(_packed_part, path, part, limits))
        sent[digest] = part.size
        advance(part.size)

    manifest = await asyncio.to_thread(pack, bundle.manifest.canonical, limits)
    if len(manifest) > PACKED_BYTES:
        rule = (
            f"the list of the {len(places)} parts has {len(manifest)} bytes; at most {PACKED_BYTES} fit into a message"
        )
        raise PayloadTooLarge("bundle", f"{rule}. Leave files out, or read them from a shared storage")
    await _begin(target, bundle.digest, manifest, by, sleep)
    wanted = list(places)
    for begin in range(0, len(wanted), _ASKED):
        asked = wanted[begin : begin + _ASKED]
        absent = await target.missing(asked)
        advance(sum(places[digest][1].size for digest in set(asked) - set(absent)))
        await for_each(absent, send, at_once=_AT_ONCE)
    for _ in range(_ROUNDS):
        absent = await target.commit(bundle.digest, name=name, by=by)
        if not absent:
            break
        await for_each(absent, send, at_once=_AT_ONCE)
    else:
        raise BusError(f"bundle {bundle.digest} was not published: its parts are removed again and again")
    sent_bytes = sum(sent.values())
    return PublishResult(
        digest=bundle.digest,
        name=name,
        target=bundle.manifest.target,
        files=len(bundle.manifest.files),
        bytes=sum(file.size for file in bundle.manifest.files),
        sent_parts=len(sent),
        sent_bytes=sent_bytes,
        present_parts=len(places) - len(sent),
        present_bytes=total - sent_bytes,
    )


async def _begin(
    target: BundleTarget, digest: str, manifest: bytes, by: str, sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Store the manifest, and begin as soon as no prune is under way."""
    for left in reversed(range(_TRIES)):
        await target.put(digest, manifest)
        try:
            return await target.begin(digest, by=by)
        except (BundleMissing, Overloaded) as error:
            if not left:
                raise
            # missing: a prune has removed the manifest since
            await sleep(getattr(error, "retry_after_s", 0.0))
    return None


def _packed_part(path: Path, part: BundlePart, limits: BundleLimits) -> bytes:
    with path.open("rb") as file:
        file.seek(part.offset)
        content = file.read(part.size)
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise InvalidInput(str(path), "the file has changed since the bundle was collected; push it again")
    return pack(content, limits)


__all__ = ["BundleTarget", "PublishProgress", "PublishResult", "publish_bundle"]
