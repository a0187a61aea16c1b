"""From a URL to a registry, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.errors import InvalidInput, StoreError, UnknownOption, WrongAuditKey
from mainstay.stores import open_store
from mainstay.stores.registry import JobRegistry
from servers.azurite import azure_url
from servers.moto import dynamodb_url, s3_url
from tests.conformance.adapters import BUCKETS
from tests.places import server_url


async def test_a_folder_is_a_registry_with_its_own_pace(tmp_path: Path) -> None:
    store = await open_store(f"file://{tmp_path}/jobs?poll=50ms&busy_timeout=3s")
    assert isinstance(store, JobRegistry)
    assert store.url == f"file://{tmp_path}/jobs"
    assert store._base.poller._every_s == 0.05
    assert "the commit is in file://" in store.durability
    await store.close()


async def test_a_folder_may_be_named_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await (await open_store("file:jobs?poll=3s")).close()
    assert (tmp_path / "jobs" / "head@").exists()


async def test_a_registry_that_is_not_there_can_be_left_unmade(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no job registry in file:.*right place"):
        await open_store(f"file://{tmp_path}/typo?create=no")
    assert not (tmp_path / "typo").exists()
    await (await open_store(f"file://{tmp_path}/jobs")).close()
    await (await open_store(f"file://{tmp_path}/jobs?create=no")).close()

    azure = BUCKETS["azure"]
    assert azure.prepare is not None
    await azure.prepare(azure.at(tmp_path))
    with pytest.raises(StoreError, match="there is no job registry in az:"):
        await open_store(azure.at(tmp_path) + "&create=no")


@pytest.mark.parametrize("option", ["pole=3s", "prefix=x"])
async def test_an_option_that_neither_it_nor_its_storage_knows_is_refused_by_name(tmp_path: Path, option: str) -> None:
    with pytest.raises(UnknownOption, match=option.partition("=")[0]):
        await open_store(f"file://{tmp_path}/jobs?{option}")


async def test_a_pace_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="poll: must be more than zero"):
        await open_store(f"file://{tmp_path}/jobs?poll=0s")


async def test_the_trail_of_a_registry_has_one_key(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/jobs"
    await (await open_store(url, audit_key=b"one")).close()
    for other in (b"two", None):
        with pytest.raises(WrongAuditKey):
            await open_store(url, audit_key=other)
    await (await open_store(url, audit_key=b"one")).close()


@pytest.mark.parametrize(
    "url",
    [
        lambda: s3_url(server_url("moto"), "x").replace("s3://registry", "s3://nowhere"),
        lambda: azure_url(server_url("azurite"), "x").replace("az://registry", "az://nowhere"),
        lambda: dynamodb_url(server_url("moto"), "x").replace("dynamodb://registry", "dynamodb://nowhere"),
    ],
    ids=["s3", "azure", "dynamodb"],
)
async def test_where_there_is_no_bucket_or_table_the_error_says_what_makes_it(url: object) -> None:
    with pytest.raises(StoreError, match="mainstay store init .*nowhere") as refused:
        await open_store(url())  # type: ignore[operator]
    assert "account_key" not in str(refused.value)
    assert "secret" not in str(refused.value)
