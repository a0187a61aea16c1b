"""`store init`: what a versioned store needs is made once, or the reader is told what it takes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mainstay.cli import app, main
from mainstay.errors import StoreError
from mainstay.stores import open_store
from mainstay.stores.versioned import open_versioned
from servers.azurite import azure_url
from servers.gcs import gcs_url
from servers.moto import dynamodb_url, s3_url
from tests.places import server_url

CLOUDS: dict[str, tuple[str, Callable[[str, str], str]]] = {
    "bucket": ("moto", s3_url),
    "container": ("azurite", azure_url),
    "table": ("moto", dynamodb_url),
}


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["store", "init", *words], catch_exceptions=False, env={"COLUMNS": "200"})


def told(url: str, code: int = 0) -> Any:
    done = run(url, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


async def opened(url: str) -> None:
    await (await open_store(url)).close()


async def usable(url: str) -> bool:
    store = await open_versioned(url)
    try:
        return await store.create_if_absent("a", b"1") is not None
    finally:
        await store.close()


def failed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str) -> str:
    """What a shell would show; the exit code is 2."""
    monkeypatch.setattr("sys.argv", ["mainstay", "store", "init", url])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("what", CLOUDS)
def test_what_is_missing_is_made_once(what: str) -> None:
    kind, at = CLOUDS[what]
    name = f"init-{what}"
    url = at(server_url(kind), "study").replace("://registry/", f"://{name}/")
    shown = url.partition("?")[0]

    first, second, third = run(url), run(url), told(url)

    assert (first.exit_code, first.stdout) == (0, f"{shown}: created the {what} {name}, created the job registry\n")
    assert (second.exit_code, second.stdout) == (0, f"{shown} exists already\n")
    assert third == {"store": shown, "made": []}
    assert asyncio.run(usable(url))
    joined = "&" if "?" in url else "?"
    asyncio.run(opened(f"{url}{joined}create=no"))


def test_a_bucket_of_nats_is_made_once() -> None:
    url = f"{server_url('nats')}/init"

    assert told(url) == {"store": url, "made": ["created the bucket init"]}
    assert told(url) == {"store": url, "made": []}


def test_a_folder_is_made_once_if_its_parent_is_there(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/values"

    assert told(url) == {"store": url, "made": [f"created the folder {tmp_path}/values", "created the job registry"]}
    assert told(url) == {"store": url, "made": []}
    asyncio.run(opened(f"{url}?create=no"))
    assert told(f"file://{tmp_path}/no/values", code=2)["error"]["message"].endswith("does not exist; create it first")


def test_options_of_the_registry_may_be_in_the_url(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/jobs"

    done = run(f"{url}?poll=2s&busy_timeout=3s")

    assert (done.exit_code, done.stdout) == (
        0,
        f"{url}: created the folder {tmp_path}/jobs, created the job registry\n",
    )


def test_a_place_for_values_holds_no_registry(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/values"

    done = run(url, "--values")

    assert (done.exit_code, done.stdout) == (0, f"{url}: created the folder {tmp_path}/values\n")
    assert not (tmp_path / "values" / "head@").exists()
    with pytest.raises(StoreError, match="there is no job registry"):
        asyncio.run(opened(f"{url}?create=no"))


def test_a_registry_that_was_made_without_the_audit_key_is_refused_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/jobs"
    told(url)
    monkeypatch.setenv("MAINSTAY_AUDIT_KEY", "secret")

    assert told(url, code=2)["error"]["code"] == "wrong_audit_key"


def test_where_it_cannot_be_made_from_here_it_says_what_makes_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = gcs_url(server_url("gcs"), "study").replace("://registry/", "://unmade/")

    said = failed(capsys, monkeypatch, url)

    assert "storage.buckets.create" in said
    assert "gcloud storage buckets create gs://unmade" in said
    assert told(url, code=2)["error"]["code"] == "store_error"


def test_who_is_denied_is_told_what_is_needed_and_no_key_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = re.sub(r"account_key=[^&]+", "account_key=d3Jvbmc%3D", azure_url(server_url("azurite"), "denied"))

    said = failed(capsys, monkeypatch, url)

    assert "Storage Blob Data Contributor" in said
    assert "d3Jvbmc" not in said


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("sqlite:///jobs.db", "needs no init"),
        ("memory:", "needs no init"),
        ("redis://localhost", "needs no init"),
        ("postgresql://app:secret@db/shop", "mainstay store migrate postgresql://app:"),
        ("ftp://host/jobs", "az, dynamodb, file, gs, nats, s3"),
    ],
)
def test_a_store_that_has_nothing_to_make_is_refused_with_advice(
    url: str, advice: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    said = failed(capsys, monkeypatch, url)

    assert advice in said
    assert "secret" not in said
    assert list(tmp_path.iterdir()) == []
