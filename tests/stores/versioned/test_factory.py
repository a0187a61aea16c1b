"""From a URL to a versioned store."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mainstay.errors import InvalidInput, NoAdapter, UnknownOption
from mainstay.stores.versioned import factory, open_versioned


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [
        ("s3://bucket/prefix", "obstore", "objects"),
        ("gs://bucket/prefix", "obstore", "objects"),
        ("az://container/prefix", "obstore", "objects"),
        ("dynamodb://table/prefix", "boto3", "dynamodb"),
        ("nats://ann:secret@host/bucket", "nats", "nats"),
    ],
)
def test_without_its_driver_a_store_is_refused_with_what_to_install(url: str, driver: str, extra: str) -> None:
    program = f"""
import asyncio, sys
from mainstay.stores.versioned import open_versioned

class Without:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == {driver!r}:
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Without())
try:
    asyncio.run(open_versioned({url!r}))
except Exception as error:
    print(type(error).__name__, error)
"""

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert said.startswith("MissingExtra store: "), said
    assert f"pip install 'mainstay[{extra}]'" in said
    assert "secret" not in said


def test_drivers_are_imported_only_when_a_url_asks_for_them() -> None:
    program = (
        "import sys, mainstay.stores.versioned as v; print({'obstore', 'boto3', 'nats', 'apsw'} & set(sys.modules))"
    )

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert said.strip() == "set()"


def test_every_scheme_of_ours_is_an_entry_point_too() -> None:
    declared = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())

    assert declared["project"]["entry-points"][factory.GROUP] == factory._OURS


async def test_a_scheme_nobody_knows_is_refused_with_the_known_ones() -> None:
    with pytest.raises(NoAdapter, match=r"^store: no versioned store for 'carrier' .* known schemes: az, .*memory"):
        await open_versioned("carrier://pigeon")


@pytest.mark.parametrize("url", ["values.db", "", None, 5])
async def test_what_is_no_url_is_refused_with_an_example(url: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^store: .* is not a store URL; write one like 'file:///srv/jobs'"):
        await open_versioned(url)


async def test_memory_has_no_options_and_is_new_each_time() -> None:
    with pytest.raises(UnknownOption):
        await open_versioned("memory:?size=5")
    first, second = await open_versioned("memory:"), await open_versioned("memory:")
    await first.create_if_absent("a", b"x")

    assert await second.list_keys() == []
