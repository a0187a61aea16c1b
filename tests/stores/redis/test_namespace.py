"""Which layouts are opened: those of this version, and newer ones that say that this version can work with them."""

from __future__ import annotations

import pytest

from mainstay.errors import SchemaTooNew
from mainstay.stores import open_store
from mainstay.stores.redis.directory import COMPATIBLE_FROM, VERSION
from tests.stores.redis.conftest import Plain


async def test_a_new_namespace_says_which_programs_can_work_with_it(redis_url: str, plain: Plain) -> None:
    await (await open_store(redis_url)).close()

    said = plain("HMGET", "meta", "version", "compatible_from")

    assert said == [str(VERSION).encode(), str(COMPATIBLE_FROM).encode()]


async def test_a_newer_layout_is_opened_if_it_says_so_and_is_left_as_it_is(redis_url: str, plain: Plain) -> None:
    plain("HSET", "meta", "version", VERSION + 2, "compatible_from", VERSION)

    await (await open_store(redis_url)).close()

    assert plain("HGET", "meta", "version") == str(VERSION + 2).encode()


@pytest.mark.parametrize("oldest", [VERSION + 1, None])
async def test_a_newer_layout_that_shuts_this_version_out_is_refused(
    redis_url: str, plain: Plain, oldest: int | None
) -> None:
    plain("HSET", "meta", "version", VERSION + 1)
    if oldest is not None:
        plain("HSET", "meta", "compatible_from", oldest)

    with pytest.raises(SchemaTooNew, match=f"has schema version {VERSION + 1}, .*upgrade Mainstay"):
        await open_store(redis_url)
