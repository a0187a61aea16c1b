"""The bundle of a slice on its node: managers that are away, and bundles that cannot be had."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any, cast

import pytest

from mainstay.bundles import BundleCache, BundleClient, MachineBundles, collect_bundle, publish_bundle
from mainstay.errors import BundleCorrupt, NoResponders
from mainstay.load.fleet.slice_code import bundle_in_use
from mainstay.testing import run_virtual
from mainstay.worker import GiveBack
from tests.bundles.program import managed, shop

DIGEST = "ab" * 32


class Fetching:
    """Bundles that cannot be had for a while: the errors, one for each try, and then a bundle."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.released = False
        self.folder = Path("/cache/bundle")

    async def use(self, digest: str) -> Any:
        assert digest == DIGEST
        if self.errors:
            raise self.errors.pop(0)
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.released = True


def used(fetching: Fetching, *, within_s: float = 300.0) -> Path:
    async def main() -> Path:
        rng = random.Random(1)
        async with bundle_in_use(cast("MachineBundles", fetching), DIGEST, within_s=within_s, rng=rng) as folder:
            assert not fetching.released
            return folder

    return run_virtual(main())


def away() -> NoResponders:
    return NoResponders("data.bundle.node.n1.fetch")


def test_a_bundle_is_fetched_again_while_no_manager_answers() -> None:
    fetching = Fetching(away(), away(), away())

    assert used(fetching) == fetching.folder
    assert fetching.released


def test_a_slice_is_given_back_when_no_manager_answers_for_too_long() -> None:
    with pytest.raises(GiveBack, match=f"bundle {DIGEST} could not be fetched for 20 s: "):
        used(Fetching(*(away() for _ in range(1000))), within_s=20.0)


def test_a_slice_is_given_back_at_once_if_another_try_would_not_help() -> None:
    for error in (BundleCorrupt(DIGEST, "its content has another digest"), OSError(28, "No space left on device")):
        fetching = Fetching(error)
        with pytest.raises(GiveBack, match=f"bundle {DIGEST} cannot be used: "):
            used(fetching)
        assert not fetching.errors


async def test_a_bundle_is_not_removed_while_a_slice_uses_it(tmp_path: Path) -> None:
    async with managed() as side:
        operator = side.client("operator", "ann")
        digest = (await publish_bundle(operator, collect_bundle("shop.tasks:app", shop(tmp_path / "shop")))).digest
        node: BundleClient = side.client()
        bundles = MachineBundles(tmp_path / "cache", node, most_bytes=2**30, oldest_s=1e6)
        cache = BundleCache(tmp_path / "cache", node.fetch)
        async with bundle_in_use(bundles, digest, within_s=10.0, rng=random.Random(1)):
            during = await cache.prune(most_bytes=0)
        after = await cache.prune(most_bytes=0)

    assert during is not None
    assert after is not None
    assert (during.removed, after.removed) == ((), (digest,))


async def test_slices_that_begin_together_share_a_bundle(tmp_path: Path) -> None:
    async with managed() as side:
        operator = side.client("operator", "ann")
        digest = (await publish_bundle(operator, collect_bundle("shop.tasks:app", shop(tmp_path / "shop")))).digest
        bundles = MachineBundles(tmp_path / "cache", side.client(), most_bytes=2**30, oldest_s=1e6)

        async def folder() -> Path:
            async with bundle_in_use(bundles, digest, within_s=10.0, rng=random.Random(1)) as found:
                return found

        found = await asyncio.gather(folder(), folder(), folder())

    assert set(found) == {tmp_path / "cache" / "bundles" / digest}
