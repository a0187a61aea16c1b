"""The caller's side: nodes find and fetch bundles over the bus, operators publish and remove them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from ..bus import Bus
from ..errors import BusError, NoResponders, RequestTimeout
from ..stores.remote import MAINSTAY_VERSION, StoreAnswer, StoreRequest, error_of
from .manifest import BundleLimits, BundleManifest, check_digest, read_manifest
from .messages import (
    CommitArguments,
    DigestArguments,
    EmptyArguments,
    MissingArguments,
    PruneArguments,
    PutArguments,
    ReferenceArguments,
)
from .packed import unpack
from .records import BundleListing, BundleRemoval, NameMove, PublishedBundle

T = TypeVar("T")

_TRIES = 4
_TIMEOUT_S = 15.0
#: a removal reads the manifests of all bundles
_REMOVAL_S = 120.0


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
        version: str = MAINSTAY_VERSION,
        rng: random.Random | None = None,
        timeout_s: float = _TIMEOUT_S,
        tries: int = _TRIES,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._bus = bus
        self._subject = f"data.bundle.{role}.{name}"
        self._envelope = StoreRequest(v=version, c=cluster, e=environment, id="")
        self._rng = rng or random.Random()
        self._timeout_s = timeout_s
        self._tries = tries
        self._sleep = sleep

    async def limits(self) -> BundleLimits:
        """How large a bundle of this cluster may be."""
        return await self._call("limits", EmptyArguments(), BundleLimits)

    async def find(self, reference: str) -> PublishedBundle:
        """The bundle of a name, a digest, or the beginning of a digest."""
        return await self._call("find", ReferenceArguments(reference=reference), PublishedBundle)

    async def fetch(self, digest: str) -> bytes:
        """The packed form of a part or a manifest. `BundleCache` takes this method."""
        return await self._call("fetch", DigestArguments(digest=digest), bytes)

    async def manifest(self, digest: str, limits: BundleLimits | None = None) -> BundleManifest:
        """The manifest of a bundle, checked."""
        limits = limits or BundleLimits()
        packed = await self.fetch(check_digest(digest))
        return read_manifest(digest, unpack(packed, digest=digest, most=limits.manifest_bytes, limits=limits), limits)

    async def missing(self, digests: Sequence[str]) -> list[str]:
        """Those that are not stored, or damaged."""
        return await self._call("missing", MissingArguments(digests=list(digests)), list[str])

    async def put(self, digest: str, packed: bytes) -> None:
        """Store a part or a manifest."""
        await self._call("put", PutArguments(digest=digest, packed=packed), type(None))

    async def begin(self, digest: str, *, by: str) -> None:
        """Protect the parts of a bundle from a prune; its manifest is stored."""
        await self._call("begin", DigestArguments(digest=digest, by=by), type(None))

    async def commit(self, digest: str, *, name: str, by: str) -> list[str]:
        """Publish a bundle; returns the parts that are missing."""
        return await self._call("commit", CommitArguments(digest=digest, name=name, by=by), list[str])

    async def listing(self) -> BundleListing:
        """All bundles and names."""
        return await self._call("list", EmptyArguments(), BundleListing)

    async def history(self, name: str) -> list[NameMove]:
        """The moves of a name, the newest first."""
        return await self._call("history", ReferenceArguments(reference=name), list[NameMove])

    async def remove(self, reference: str) -> BundleRemoval:
        """Remove a name, or the bundle of a digest."""
        return await self._call("remove", ReferenceArguments(reference=reference), BundleRemoval, _REMOVAL_S)

    async def prune(self, *, keep: int | None = None, older_than_s: float | None = None) -> BundleRemoval:
        """Remove old bundles, and parts that no bundle needs."""
        wanted = PruneArguments(keep=keep, older_than_s=older_than_s)
        return await self._call("prune", wanted, BundleRemoval, _REMOVAL_S)

    async def _call(self, method: str, arguments: msgspec.Struct, kind: type[T], timeout_s: float = 0) -> T:
        request = msgspec.structs.replace(
            self._envelope,
            id=f"{self._rng.getrandbits(96):024x}",
            a=msgspec.Raw(msgspec.msgpack.encode(arguments)),
        )
        body = await self._asked(f"{self._subject}.{method}", msgspec.msgpack.encode(request), timeout_s)
        try:
            answer = msgspec.msgpack.decode(body, type=StoreAnswer)
            if answer.error is None:
                return msgspec.msgpack.decode(answer.ok, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BusError(
                f"the answer to {self._subject}.{method} cannot be read ({error}); "
                "check that managers and nodes have the same version"
            ) from None
        raise error_of(answer.error)

    async def _asked(self, subject: str, body: bytes, timeout_s: float) -> Any:
        for turn in range(1, self._tries + 1):
            try:
                return await self._bus.request(subject, body, timeout_s or self._timeout_s)
            except (NoResponders, RequestTimeout):
                if turn == self._tries:
                    raise
            await self._sleep(2.0 ** (turn - 1) * self._rng.uniform(0.5, 1.0))
        raise AssertionError("the loop returns or raises")


__all__ = ["BundleClient"]
