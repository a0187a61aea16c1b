"""Where outputs go when nobody, or the environment, says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mainstay.batch.locations import OutputStores, outputs_url
from mainstay.errors import InvalidInput
from mainstay.outputs import Manifest, ManifestGroup, Unit, save_manifest


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAINSTAY_OUTPUTS", raising=False)


def test_beside_a_store_of_this_machine_they_go_into_a_folder_here(tmp_path: Path) -> None:
    assert outputs_url(None, "sqlite:///jobs.db") == f"file://{tmp_path}/mainstay-outputs"


def test_beside_a_server_somebody_has_to_say_it() -> None:
    with pytest.raises(InvalidInput, match="MAINSTAY_OUTPUTS"):
        outputs_url(None, "postgresql://db/app")


def test_what_is_given_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTAY_OUTPUTS", "s3://bucket/env")
    assert outputs_url("gs://bucket/given", "memory:") == "gs://bucket/given"
    assert outputs_url(None, "postgresql://db/app") == "s3://bucket/env"


def test_a_relative_folder_is_the_same_for_a_worker_that_runs_elsewhere(tmp_path: Path) -> None:
    assert outputs_url("file:out?sync=off", "memory:") == f"file://{tmp_path}/out?sync=off"
    assert outputs_url("file:///srv/out", "memory:") == "file:///srv/out"


SECRET = "s3://ours/runs?region=eu-1&access_key_id=ann&secret_access_key=hush"
BARE = "s3://ours/runs?region=eu-1&access_key_id=ann"


@pytest.mark.parametrize("said_by", ["the app", "the environment"])
def test_a_url_is_stored_without_its_secrets_and_opened_with_them(
    monkeypatch: pytest.MonkeyPatch, said_by: str
) -> None:
    if said_by == "the environment":
        monkeypatch.setenv("MAINSTAY_OUTPUTS", SECRET)
    places = OutputStores(own=SECRET if said_by == "the app" else None)

    assert places.stored(SECRET) == BARE
    assert places._with_secrets(BARE) == SECRET


def test_a_secret_that_workers_would_not_have_is_refused_and_not_told() -> None:
    with pytest.raises(InvalidInput, match="contains a secret, which is not stored with jobs") as refused:
        OutputStores().stored(SECRET)
    assert "hush" not in str(refused.value)


def test_a_url_without_secrets_is_stored_as_it_is() -> None:
    assert OutputStores().stored("file:///srv/runs?sync=off") == "file:///srv/runs?sync=off"
    assert OutputStores().stored("memory:") == "memory:"


async def test_a_manifest_that_many_ask_for_at_once_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    places = OutputStores()
    store = await places.get("memory:", create=True)
    group = ManifestGroup.of([Unit("study", "1", {}, seed) for seed in range(3)], ["a"])
    await save_manifest(store, Manifest(job="job", groups=[group]))
    read = store.blobs.read
    asked: list[str] = []

    async def reading(paths: Sequence[str]) -> Any:
        asked.extend(paths)
        return await read(paths)

    monkeypatch.setattr(store.blobs, "read", reading)

    found = await asyncio.gather(*(places.manifest("memory:", "job") for _ in range(10)))

    assert [len(each) for each in found] == [3] * 10
    assert len(asked) == 1
