"""From a URL to a store."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mainstay.errors import InvalidInput, NoAdapter
from mainstay.stores import factory, open_store, shown_url


async def test_a_store_that_is_still_to_come_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(NoAdapter) as refused:
        await open_store("nats://db")

    assert "not in this version yet; use sqlite:///jobs.db or memory:" in str(refused.value)
    assert "will come with the extra 'nats'" in str(refused.value)
    assert "pip install" not in str(refused.value)


@pytest.mark.parametrize(
    ("scheme", "driver", "extra"),
    [
        ("postgresql", "asyncpg", "postgres"),
        ("postgres", "asyncpg", "postgres"),
        ("redis", "redis", "redis"),
        ("rediss", "redis", "redis"),
        ("valkey", "redis", "redis"),
        ("valkeys", "redis", "redis"),
    ],
)
def test_without_its_driver_a_store_is_refused_with_what_to_install(scheme: str, driver: str, extra: str) -> None:
    program = (
        f"import asyncio, sys; sys.modules[{driver!r}] = None\n"
        "from mainstay.stores import open_store\n"
        f"try: asyncio.run(open_store('{scheme}://ann:secret@db/jobs'))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert said.startswith(f"MissingExtra store: {scheme}: stores need {driver}, which is not installed")
    assert f"pip install 'mainstay[{extra}]'" in said
    assert "secret" not in said


def test_every_scheme_of_ours_is_an_entry_point_too() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())

    assert declared["project"]["entry-points"][factory.GROUP] == factory._OURS


async def test_a_scheme_nobody_knows_is_refused_with_the_known_ones() -> None:
    with pytest.raises(NoAdapter, match=r"^store: no adapter for 'carrier' .* known schemes: .*memory, .*sqlite"):
        await open_store("carrier://pigeon")


@pytest.mark.parametrize("url", ["jobs.db", "", None, 5])
async def test_what_is_no_url_is_refused_with_an_example(url: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^store: .* is not a store URL; write one like 'sqlite:///jobs.db'"):
        await open_store(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////srv/jobs.db", "sqlite:////srv/jobs.db"),
        ("memory:", "memory:"),
        ("postgresql://ann@db/jobs", "postgresql://ann@db/jobs"),
        ("postgresql://ann:secret@db/jobs", "postgresql://ann:***@db/jobs"),
        ("postgresql://ann:se@cr:et@db/jobs", "postgresql://ann:***@db/jobs"),
        ("postgresql://db/jobs?user=ann&password=secret", "postgresql://db/jobs"),
        ("redis://:secret@db/0", "redis://:***@db/0"),
        ("redis:secret@db", "redis:***@db"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


async def test_a_refused_url_keeps_its_secrets_to_itself() -> None:
    with pytest.raises(NoAdapter) as refused:
        await open_store("carrier://ann:secret@coop/jobs?password=secret")

    assert "secret" not in str(refused.value)
