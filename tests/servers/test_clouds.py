"""What stands in for clouds keeps the promises that versioned stores are built on, and comes back after a stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import boto3
import pytest
from botocore.exceptions import ClientError

import servers
from mainstay.stores.versioned import open_versioned
from mainstay.stores.versioned.objects import prepare
from tests.places import server_url


@pytest.fixture
def place() -> Iterator[Path]:
    with servers.folder("mainstay-servers-") as made:
        yield made


def ask(method: str, url: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urlopen(Request(url, data=body, method=method, headers=named), timeout=60) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def test_the_google_server_honours_generations_and_keeps_its_objects_over_a_kill(place: Path) -> None:
    server = servers.Gcs(place)
    url = f"{server.url()}/registry/a%2Fb"
    try:
        made, first, _ = ask("PUT", url, b"1", x_goog_if_generation_match="0")
        twice, _, _ = ask("PUT", url, b"2", x_goog_if_generation_match="0")
        changed, second, _ = ask("PUT", url, b"1", x_goog_if_generation_match=first["x-goog-generation"])
        stale, _, _ = ask("DELETE", url, x_goog_if_generation_match=first["x-goog-generation"])
        server.kill()
        server.start()
        _, found, body = ask("GET", url)
        absent, _, said = ask("GET", f"{server.url()}/nowhere/a")
        removed, _, _ = ask("DELETE", url, x_goog_if_generation_match=second["x-goog-generation"])
        _, third, _ = ask("PUT", url, b"1", x_goog_if_generation_match="0")
    finally:
        server.stop()

    assert (made, twice, changed, stale, removed) == (200, 412, 200, 412, 204)
    assert (found["x-goog-generation"], body) == (second["x-goog-generation"], b"1")
    assert len({told["x-goog-generation"] for told in (first, second, third)}) == 3
    assert absent == 404
    assert b"NoSuchBucket" in said


@pytest.mark.slow
async def test_azurite_keeps_its_blobs_over_a_stop(place: Path) -> None:
    server_url("azurite")  # has it installed, which is no part of this test's time
    server = servers.Azurite(place)
    try:
        url = server.database("kept")
        await prepare(url)
        store = await open_versioned(url)
        version = await store.create_if_absent("a", b"1")
        server.stop()
        server.start()
        found = await store.get("a")
        await store.close()
    finally:
        server.stop()

    assert found is not None
    assert (found.value, found.version) == (b"1", version)


def test_moto_looks_at_a_condition_and_writes_in_one_turn(place: Path) -> None:
    server = servers.Moto(place)
    credentials = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    client = boto3.session.Session().client("s3", endpoint_url=server.url(), **credentials)
    together = threading.Barrier(8)

    def make(_: int) -> int:
        together.wait()
        try:
            client.put_object(Bucket="registry", Key="a", Body=b"1", IfNoneMatch="*")
        except ClientError as error:
            return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
        return 200

    try:
        client.create_bucket(Bucket="registry")
        with ThreadPoolExecutor(8) as threads:
            answers = sorted(threads.map(make, range(8)))
        with pytest.raises(ClientError, match="PreconditionFailed"):
            client.put_object(Bucket="registry", Key="a", Body=b"2", IfMatch='"other"')
    finally:
        client.close()
        server.stop()

    assert answers == [200] + [412] * 7
    with pytest.raises(ConnectionRefusedError):
        server.answers()


@pytest.mark.parametrize("kind", ["azurite", "nats", "moto"])
def test_a_server_whose_program_is_missing_says_how_to_get_it(
    kind: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("sys.executable", str(place / "python"))
    monkeypatch.setattr("servers.moto.version", _none_is_installed)
    start = {"azurite": servers.Azurite, "nats": servers.Nats, "moto": servers.Moto}[kind]

    with pytest.raises(servers.ServerMissing, match="install"):
        start(place)


def _none_is_installed(name: str) -> str:
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError(name)
