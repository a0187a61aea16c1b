"""Where outputs go when nobody, or the environment, says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.batch.places import outputs_url
from mainstay.errors import InvalidInput


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
