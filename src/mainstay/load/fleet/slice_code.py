"""The code of a slice on its node: a bundle, or installed modules. A slice whose code cannot be had is given back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

from ...bundles import BundleInUse, MachineBundles, installed_digest
from ...errors import BusError, InvalidInput, MainstayError, Overloaded, StoreError
from ...worker import GiveBack

log = logging.getLogger("mainstay.load")

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 5.0


@contextlib.asynccontextmanager
async def bundle_in_use(
    bundles: MachineBundles,
    digest: str,
    *,
    within_s: float,
    rng: random.Random,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[Path]:
    """The folder of a bundle, which is not removed within the block. While no manager answers it tries again, for
    `within_s`. Raises `GiveBack` if the bundle cannot be had."""
    with await _fetched(bundles, digest, within_s, rng, sleep) as used:
        yield used.folder


async def _fetched(
    bundles: MachineBundles,
    digest: str,
    within_s: float,
    rng: random.Random,
    sleep: Callable[[float], Awaitable[None]],
) -> BundleInUse:
    loop = asyncio.get_running_loop()
    ends_s, wait_s = loop.time() + within_s, _FIRST_WAIT_S
    while True:
        try:
            return await bundles.use(digest)
        except (BusError, StoreError, Overloaded) as error:
            if loop.time() + wait_s >= ends_s:
                raise GiveBack(f"bundle {digest} could not be fetched for {within_s:g} s: {error}") from error
            log.warning("bundle %s not fetched: %s; again in %.1f s", digest, error, wait_s)
        except (MainstayError, OSError) as error:
            raise GiveBack(f"bundle {digest} cannot be used: {error}") from error
        await sleep(wait_s * rng.uniform(0.5, 1.0))
        wait_s = min(_LONGEST_WAIT_S, wait_s * 2)


async def check_modules(modules: Mapping[str, str]) -> None:
    """Refuse modules that are not installed as where the run was planned; raises `GiveBack`, which names both."""
    for module, planned in modules.items():
        try:
            ours = await asyncio.to_thread(installed_digest, module)
        except InvalidInput as error:
            raise GiveBack(f"module {module} cannot be used here: {error.rule}") from None
        if ours != planned:
            raise GiveBack(
                f"module {module} has the digest {ours[:12]} on this node, {planned[:12]} where the run was planned; "
                "install the same version, or send the code as a bundle"
            )


__all__ = ["bundle_in_use", "check_modules"]
