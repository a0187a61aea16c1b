"""Bundles in the blobs of a cluster.

    bundles/sha256/DIGEST            a part or a manifest in its packed form; the digest is that of the content
    bundles/published/DIGEST         a bundle that is complete
    bundles/begun/DIGEST             a bundle whose parts are being stored: a prune leaves them alone
    bundles/names/NAME/TIME.DIGEST   a name was pointed to a bundle; the last one counts
    bundles/pruning/ID               parts are being removed: no bundle may be begun meanwhile

Nothing is changed in place, so that managers do not have to agree with each other: the same content has the same
address, and each move of a name is a blob of its own.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec

from ..clock import Clock, SystemClock
from ..errors import BundleCorrupt, BundleMissing, InvalidInput, Overloaded, PayloadTooLarge, StoreError
from ..outputs import Blobs
from .manifest import MB, BundleLimits, BundleManifest, check_digest, read_manifest
from .packed import unpack
from .records import BundleListing, NameMove, PublishedBundle, check_bundle_name, is_digest_start

#: the largest packed form: with its envelope it has to fit into a message of 1 MiB
PACKED_BYTES = 1_000_000
PARTS = "bundles/sha256"
PUBLISHED = "bundles/published"
BEGUN = "bundles/begun"
NAMES = "bundles/names"
PRUNING = "bundles/pruning"
#: a prune that was killed no longer counts after this time
PRUNE_S = 600.0
_RETRY_AFTER_S = 1.0
#: parts that are read at a time: bounds the memory
_READ_AT_ONCE = 8
RECENT_BYTES = 64 * MB


def bundle_address(digest: str) -> str:
    """Where a part or a manifest is stored."""
    return f"{PARTS}/{check_digest(digest)}"


class BundleStorage:
    """The bundles of a cluster. `recent_bytes` bounds the checked parts that it keeps in memory."""

    def __init__(
        self,
        blobs: Blobs,
        *,
        limits: BundleLimits | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        recent_bytes: int = RECENT_BYTES,
    ) -> None:
        self.blobs = blobs
        self.limits = limits or BundleLimits()
        self.clock = clock or SystemClock()
        self.rng = rng or random.Random()
        self._recent: OrderedDict[str, bytes] = OrderedDict()
        self._recent_bytes = 0
        self._most_recent_bytes = recent_bytes

    # parts ---------------------------------------------------------------------------------------

    async def fetch(self, digest: str) -> bytes:
        """The packed form of a part or a manifest, checked."""
        check_digest(digest)
        found = self._recent.get(digest)
        if found is None:
            [found] = await self._read([digest])
            if found is None:
                raise BundleMissing(digest)
            await asyncio.to_thread(self._check, digest, found)
            self._remember(digest, found)
        else:
            self._recent.move_to_end(digest)
        return found

    async def put(self, digest: str, packed: bytes) -> None:
        """Store the packed form of a part or a manifest; refuses bytes that do not belong to the digest."""
        check_digest(digest)
        await asyncio.to_thread(self._check, digest, packed)
        await self.blobs.write(bundle_address(digest), packed)
        self._remember(digest, packed)

    async def missing(self, digests: Sequence[str]) -> list[str]:
        """Those that are not stored, or damaged. What is stored is read and checked."""
        unknown = [check_digest(digest) for digest in digests if digest not in self._recent]
        absent: list[str] = []
        for begin in range(0, len(unknown), _READ_AT_ONCE):
            some = unknown[begin : begin + _READ_AT_ONCE]
            for digest, packed in zip(some, await self._read(some), strict=True):
                try:
                    if packed is None:
                        absent.append(digest)
                    else:
                        await asyncio.to_thread(self._check, digest, packed)
                except BundleCorrupt:
                    absent.append(digest)
        return absent

    def forget(self, digests: Iterable[str]) -> None:
        """Do not answer from memory for these."""
        for digest in digests:
            self._recent_bytes -= len(self._recent.pop(digest, b""))

    def _check(self, digest: str, packed: bytes) -> None:
        if len(packed) > PACKED_BYTES:
            rule = f"{digest} has {len(packed)} bytes; at most {PACKED_BYTES} fit into a message"
            raise PayloadTooLarge("part", rule)
        unpack(packed, digest=digest, most=self.limits.manifest_bytes, limits=self.limits)

    def _remember(self, digest: str, packed: bytes) -> None:
        self.forget([digest])
        self._recent[digest] = packed
        self._recent_bytes += len(packed)
        while self._recent_bytes > self._most_recent_bytes:
            self.forget([next(iter(self._recent))])

    async def _read(self, digests: Sequence[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for packed in await self.blobs.read([bundle_address(digest) for digest in digests]):
            if isinstance(packed, StoreError):
                raise packed
            found.append(packed)
        return found

    # bundles -------------------------------------------------------------------------------------

    async def manifest(self, digest: str) -> BundleManifest:
        """The manifest with this digest, checked."""
        packed = await self.fetch(digest)
        most = self.limits.manifest_bytes
        body = await asyncio.to_thread(unpack, packed, digest=digest, most=most, limits=self.limits)
        return read_manifest(digest, body, self.limits)

    async def begin(self, digest: str, *, by: str) -> None:
        """Protect the parts of a bundle whose manifest is stored from a prune, for a day."""
        record = _record_of(await self.manifest(digest), at_ms=self.clock.now_ms(), by=by)
        await self.blobs.write(f"{BEGUN}/{digest}", msgspec.json.encode(record))
        # a prune that begins after this look finds the record
        if await self.is_pruning():
            raise Overloaded("bundles are being removed", _RETRY_AFTER_S)

    async def commit(self, digest: str, *, name: str, by: str) -> list[str]:
        """Publish a bundle that was begun, and point a name to it (empty: none). Returns the parts that are missing;
        then nothing was published."""
        if name:
            check_bundle_name(name)
        manifest = await self.manifest(digest)
        stored = await self.listed(PARTS)
        if absent := [part for part in manifest.parts if part not in stored]:
            return absent
        # also if it was published before: it counts as new from now on, and the next prune leaves it alone
        record = _record_of(manifest, at_ms=self.clock.now_ms(), by=by)
        await self.blobs.write(f"{PUBLISHED}/{digest}", msgspec.json.encode(record))
        if name:
            await self._point(name, digest, by)
        await self.blobs.delete([f"{BEGUN}/{digest}"])
        return []

    async def find(self, reference: str) -> PublishedBundle:
        """The bundle of a name, a digest, or the first 8 or more digits of a digest."""
        if is_digest_start(reference):
            fitting = sorted(digest for digest in await self.listed(PUBLISHED) if digest.startswith(reference))
            if len(fitting) > 1:
                rule = f"{len(fitting)} bundles begin with {reference}; give more digits"
                raise InvalidInput("bundle", rule)
            digest = fitting[0] if fitting else reference
        else:
            moves = await self.listed(f"{NAMES}/{check_bundle_name(reference)}")
            if not moves:
                known = ", ".join(sorted(await self.names())[:10]) or "none"
                raise InvalidInput("bundle", f"no bundle has the name {reference!r} (names: {known}); push it first")
            digest = max(moves).partition(".")[2]
        [found] = await self._records([digest])
        if found is None:
            raise BundleMissing(digest)
        return found

    async def listing(self) -> BundleListing:
        """All bundles and names."""
        digests = sorted(await self.listed(PUBLISHED))
        found = [record for record in await self._records(digests) if record is not None]
        found.sort(key=lambda record: (-record.at_ms, record.digest))
        return BundleListing(bundles=found, names=await self.names())

    async def names(self) -> dict[str, str]:
        """The digest that each name points to."""
        found: dict[str, str] = {}
        async for folder, files in self.blobs.walk(f"{NAMES}/"):
            found[folder.rpartition("/")[2]] = max(files).partition(".")[2]
        return found

    async def history(self, name: str) -> list[NameMove]:
        """The moves of a name, the newest first."""
        keys = sorted(await self.listed(f"{NAMES}/{check_bundle_name(name)}"), reverse=True)
        found: list[NameMove] = []
        for body in await self.blobs.read([f"{NAMES}/{name}/{key}" for key in keys]):
            if isinstance(body, StoreError):
                raise body
            if body is not None:
                found.append(msgspec.json.decode(body, type=NameMove))
        return found

    async def listed(self, folder: str) -> set[str]:
        """The names in a folder of the blobs."""
        [files] = await self.blobs.find([folder])
        if isinstance(files, StoreError):
            raise files
        return set(files)

    async def begun(self, *, since_ms: int) -> list[str]:
        """The digests of bundles that were begun since then."""
        return [
            record.digest
            for record in await self._records(sorted(await self.listed(BEGUN)), folder=BEGUN)
            if record is not None and record.at_ms >= since_ms
        ]

    async def is_pruning(self) -> bool:
        """Whether parts are being removed now."""
        now_ms = self.clock.now_ms()
        return any(int(key.partition(".")[0]) > now_ms for key in await self.listed(PRUNING))

    async def _point(self, name: str, digest: str, by: str) -> None:
        last = max(await self.listed(f"{NAMES}/{name}"), default="0.")
        if last.partition(".")[2] == digest:
            return
        # later than the move before it, whatever the clock says
        at_ms = max(self.clock.now_ms(), int(last.partition(".")[0]) + 1)
        move = NameMove(digest=digest, at_ms=at_ms, by=by)
        await self.blobs.write(f"{NAMES}/{name}/{at_ms:015d}.{digest}", msgspec.json.encode(move))

    async def _records(self, digests: Sequence[str], *, folder: str = PUBLISHED) -> list[PublishedBundle | None]:
        found: list[PublishedBundle | None] = []
        for digest, body in zip(
            digests, await self.blobs.read([f"{folder}/{digest}" for digest in digests]), strict=True
        ):
            if isinstance(body, StoreError):
                raise body
            try:
                found.append(None if body is None else msgspec.json.decode(body, type=PublishedBundle))
            except msgspec.MsgspecError as error:
                raise BundleCorrupt(digest, f"its record cannot be read ({error})") from None
        return found


def _record_of(manifest: BundleManifest, *, at_ms: int, by: str) -> PublishedBundle:
    return PublishedBundle(
        digest=manifest.digest,
        name=manifest.name,
        target=manifest.target,
        files=len(manifest.files),
        code_bytes=manifest.code_bytes,
        data_bytes=manifest.data_bytes,
        at_ms=at_ms,
        by=by,
    )


__all__ = [
    "BEGUN",
    "NAMES",
    "PACKED_BYTES",
    "PARTS",
    "PRUNE_S",
    "PRUNING",
    "PUBLISHED",
    "RECENT_BYTES",
    "BundleStorage",
    "bundle_address",
]
