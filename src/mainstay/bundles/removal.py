"""Removes bundles, and the parts that no bundle needs.

While parts are being removed a blob in `bundles/pruning` says so, and no bundle can be begun. A bundle that was begun
before is found, and its parts stay: a push and a prune at the same time lose nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import NamedTuple

from ..errors import BundleCorrupt, BundleMissing, InvalidInput, StoreUnavailable
from .records import BundleRemoval, PublishedBundle, check_bundle_name, is_digest_start
from .storage import BEGUN, NAMES, PARTS, PRUNE_S, PRUNING, PUBLISHED, BundleStorage, bundle_address

#: a bundle that was begun, and not published within this time, was given up
_BEGUN_S = 86_400.0
#: a bundle that was published within this time is not pruned: a run with its code may be on its way
_ON_THE_WAY_S = 600.0
#: parts that are removed in one call
_AT_ONCE = 500


BundlesInUse = Callable[[], Awaitable[Mapping[str, str]]]
"""Reads the bundles that nodes run and that jobs need: digest -> a reason such as `node n1 runs it`."""


async def no_bundles_in_use() -> Mapping[str, str]:
    """For a storage without nodes and jobs."""
    return {}


async def remove_bundle(storage: BundleStorage, reference: str, *, in_use: BundlesInUse) -> BundleRemoval:
    """Remove a name with its history, or the bundle of a digest. A bundle that a name points to, or that is `in_use`,
    is refused."""
    if not is_digest_start(reference):
        check_bundle_name(reference)
        moves = await storage.listed(f"{NAMES}/{reference}")
        if not moves:
            raise InvalidInput("bundle", f"no bundle has the name {reference!r}")
        await storage.blobs.delete([f"{NAMES}/{reference}/{key}" for key in sorted(moves)])
        return BundleRemoval(name=reference)
    async with _pruning(storage) as until_ms:
        found = await storage.find(reference)
        reason = (await _Needs.read(storage, in_use)).reason(found.digest)
        if reason:
            raise InvalidInput("bundle", f"{found.digest} was not removed: {reason}")
        return await _remove(storage, [found], {}, until_ms)


async def prune_bundles(
    storage: BundleStorage, *, keep: int | None, older_than_s: float | None, in_use: BundlesInUse
) -> BundleRemoval:
    """Remove bundles beyond the `keep` newest of each program, or published more than `older_than_s` ago; with both,
    only what both name. Bundles with a name, bundles `in_use`, and those published minutes ago stay."""
    if keep is None and older_than_s is None:
        raise InvalidInput("keep", "say what to remove: --keep N, --older-than AGE, or both")
    async with _pruning(storage) as until_ms:
        needs = await _Needs.read(storage, in_use)
        now_ms = storage.clock.now_ms()
        seen: dict[str, int] = {}
        leaving: list[PublishedBundle] = []
        kept: dict[str, str] = {}
        for bundle in (await storage.listing()).bundles:  # the newest first
            seen[bundle.name] = seen.get(bundle.name, 0) + 1
            if keep is not None and seen[bundle.name] <= keep:
                continue
            if older_than_s is not None and now_ms - bundle.at_ms <= older_than_s * 1000:
                continue
            reason = needs.reason(bundle.digest)
            if not reason and now_ms - bundle.at_ms < _ON_THE_WAY_S * 1000:
                reason = "it was published minutes ago, and a run with its code may be on its way"
            if reason:
                kept[bundle.digest] = reason
            else:
                leaving.append(bundle)
        return await _remove(storage, leaving, kept, until_ms)


class _Needs(NamedTuple):
    """What bundles are needed for. Read while parts are being removed: then no publication begins, and one that has
    begun is seen here until its name is."""

    begun: set[str]
    names: dict[str, str]
    in_use: Mapping[str, str]

    @classmethod
    async def read(cls, storage: BundleStorage, in_use: BundlesInUse) -> _Needs:
        begun = await storage.begun(since_ms=_begun_since(storage))
        return cls(set(begun), await storage.names(), await in_use())

    def reason(self, digest: str) -> str:
        """Why a bundle stays; empty: nothing needs it."""
        named = sorted(name for name, pointed in self.names.items() if pointed == digest)
        if named:
            return f"the name {named[0]} points to it; push another bundle with this name, or remove the name first"
        if digest in self.in_use:
            return self.in_use[digest]
        return "it is being published" if digest in self.begun else ""


async def _remove(
    storage: BundleStorage, leaving: list[PublishedBundle], kept: dict[str, str], until_ms: int
) -> BundleRemoval:
    await storage.blobs.delete([f"{PUBLISHED}/{bundle.digest}" for bundle in leaving])
    needed = await _needed(storage)
    unneeded = sorted(await storage.listed(PARTS) - needed)
    for begin in range(0, len(unneeded), _AT_ONCE):
        if storage.clock.now_ms() > until_ms:
            raise StoreUnavailable("removing the parts takes too long; run mainstay cluster bundle prune again")
        some = unneeded[begin : begin + _AT_ONCE]
        await storage.blobs.delete([bundle_address(digest) for digest in some])
        storage.forget(some)
    return BundleRemoval(removed=leaving, kept=kept, parts=len(unneeded))


def _begun_since(storage: BundleStorage) -> int:
    return storage.clock.now_ms() - round(_BEGUN_S * 1000)


async def _needed(storage: BundleStorage) -> set[str]:
    """The digests of all parts and manifests that bundles need."""
    begun = await storage.begun(since_ms=_begun_since(storage))
    needed: set[str] = set()
    for digest in sorted({*begun, *await storage.listed(PUBLISHED)}):
        needed.add(digest)
        with contextlib.suppress(BundleMissing, BundleCorrupt):  # no node can use it until it is pushed again
            needed.update((await storage.manifest(digest)).parts)
    given_up = await storage.listed(BEGUN) - set(begun)
    await storage.blobs.delete([f"{BEGUN}/{digest}" for digest in sorted(given_up)])
    return needed


@contextlib.asynccontextmanager
async def _pruning(storage: BundleStorage) -> AsyncIterator[int]:
    """Say that parts are being removed; yields until when that holds."""
    now_ms = storage.clock.now_ms()
    old = [key for key in await storage.listed(PRUNING) if int(key.partition(".")[0]) <= now_ms]
    until_ms = now_ms + round(PRUNE_S * 1000)
    mine = f"{PRUNING}/{until_ms:015d}.{storage.rng.getrandbits(64):016x}"
    await storage.blobs.write(mine, b"")
    try:
        yield until_ms
    finally:
        await storage.blobs.delete([mine, *(f"{PRUNING}/{key}" for key in old)])


__all__ = ["BundlesInUse", "no_bundles_in_use", "prune_bundles", "remove_bundle"]
