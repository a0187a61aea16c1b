"""The caller's side: nodes fetch bundles over the bus, operators publish them."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...bus import Bus
from ...errors import BundleCorrupt, BusError, NoResponders, RequestTimeout
from .collection import Bundle
from .manifest import BundleLimits, BundleManifest, check_digest, read_manifest
from .messages import (
    PART_BYTES,
    BundleAnswer,
    BundlePart,
    BundleRequest,
    PartArguments,
    UploadArguments,
    UploadState,
    error_of,
)
from .packed import file_digest, pack_file
from .storage import bundle_contents

T = TypeVar("T")

_TRIES = 4
_TIMEOUT_S = 10.0


class BundleClient:
    """Asks the managers for bundles. Every request can be repeated, so one without an answer is sent again: `tries`
    times in all, after 1, 2, 4 s with jitter."""

    def __init__(
        self,
        bus: Bus,
        *,
        role: str,
        name: str,
        cluster: str,
        environment: str,
        version: str | None = None,
        rng: random.Random | None = None,
        timeout_s: float = _TIMEOUT_S,
        tries: int = _TRIES,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        limits: BundleLimits | None = None,
    ) -> None:
        self._bus = bus
        self._subject = f"data.bundle.{role}.{name}"
        self._cluster = cluster
        self._environment = environment
        self._version = installed_version("mainstay") if version is None else version
        self._rng = rng or random.Random()
        self._timeout_s = timeout_s
        self._tries = tries
        self._sleep = sleep
        self._limits = limits or BundleLimits()

    async def fetch(self, digest: str, offset: int, length: int) -> BundlePart:
        """A part of the packed form of a file or a manifest. `BundleCache` takes this method."""
        return await self._call("fetch", PartArguments(digest=digest, offset=offset, length=length), BundlePart)

    async def manifest(self, digest: str) -> BundleManifest:
        """The manifest of a bundle, checked."""
        check_digest(digest)
        body = bytearray()
        while True:
            part = await self._call("manifest", PartArguments(digest=digest, offset=len(body)), BundlePart)
            body += part.data
            if len(body) >= part.size:
                return read_manifest(digest, bytes(body), self._limits)
            if not part.data or part.size > self._limits.manifest_bytes:
                raise BundleCorrupt(digest, f"its manifest ends after {len(body)} of {part.size} bytes")

    async def publish(self, bundle: Bundle) -> str:
        """Send a bundle to the managers and return its digest. Files that they have are not sent."""
        with tempfile.TemporaryDirectory(prefix="mainstay-bundle-") as name:
            contents = await asyncio.to_thread(bundle_contents, bundle, Path(name))
            draft = Path(name, "packed")
            for digest, _, source in contents:
                await asyncio.to_thread(pack_file, source, draft, digest=digest, limits=self._limits)
                await self._upload(digest, draft)
        return bundle.digest

    async def _upload(self, digest: str, draft: Path) -> None:
        size, packed = await asyncio.to_thread(file_digest, draft)
        for offset in range(0, size, PART_BYTES):
            data = await asyncio.to_thread(_piece, draft, offset)
            part = UploadArguments(digest=digest, packed=packed, offset=offset, data=data)
            if (await self._call("publish", part, UploadState)).stored:
                return
        end = UploadArguments(digest=digest, packed=packed, offset=size, done=True)
        await self._call("publish", end, UploadState)

    async def _call(self, method: str, arguments: msgspec.Struct, kind: type[T]) -> T:
        request = BundleRequest(
            v=self._version,
            c=self._cluster,
            e=self._environment,
            id=f"{self._rng.getrandbits(128):032x}",
            a=msgspec.Raw(msgspec.msgpack.encode(arguments)),
        )
        body = await self._asked(f"{self._subject}.{method}", msgspec.msgpack.encode(request))
        try:
            answer = msgspec.msgpack.decode(body, type=BundleAnswer)
            if answer.error is None:
                return msgspec.msgpack.decode(answer.ok, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BusError(
                f"the answer to {self._subject}.{method} cannot be read ({error}); "
                "check that managers and nodes have the same version"
            ) from None
        raise error_of(answer.error)

    async def _asked(self, subject: str, body: bytes) -> Any:
        for turn in range(1, self._tries + 1):
            try:
                return await self._bus.request(subject, body, self._timeout_s)
            except (NoResponders, RequestTimeout):
                if turn == self._tries:
                    raise
            await self._sleep(2.0 ** (turn - 1) * self._rng.uniform(0.5, 1.0))
        raise AssertionError("the loop returns or raises")


def _piece(file: Path, offset: int) -> bytes:
    with file.open("rb") as packed:
        packed.seek(offset)
        return packed.read(PART_BYTES)


__all__ = ["BundleClient"]
