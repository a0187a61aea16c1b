"""One server for all who ask in a run, started once, gone after it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from servers import ServerMissing, shared
from servers.shared import Host
from tests import places

ROOT = Path(__file__).parents[2]
MISSING = """
import servers.shared

def missing(place):
    raise ServerMissing("`initdb` is not on this machine; install the package `postgresql`")
"""


@pytest.fixture
def host() -> Iterator[Host]:
    # beside the one of this run
    before = os.environ.pop(shared.VARIABLE)
    made = Host()
    yield made
    made.close()
    os.environ[shared.VARIABLE] = before


def test_all_processes_of_a_run_are_given_the_same_server(host: Host) -> None:
    here = shared.shared("redis")
    program = "from servers.shared import shared; print(shared('redis'))"
    there = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert there.stdout.strip() == here
    assert redis.Redis.from_url(here).ping()


def test_the_server_is_gone_when_the_host_is_closed_and_closing_twice_is_fine(host: Host) -> None:
    url = shared.shared("redis")

    host.close()
    host.close()

    with pytest.raises(redis.ConnectionError):
        redis.Redis.from_url(url).ping()


def test_what_cannot_be_had_is_told_to_all_who_ask(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(place: Path) -> None:
        raise ServerMissing("`redis-server` is not on this machine")

    monkeypatch.setitem(shared._STARTERS, "redis", missing)

    for _ in range(2):
        with pytest.raises(ServerMissing, match="not on this machine"):
            shared.shared("redis")


BESIDE = """
from servers import ServerMissing
from servers.shared import shared

def test_that_needs_no_server():
    pass

def test_that_needs_one(postgres_url):
    pass

def test_that_starts_one():
    raise ServerMissing("`redis-server` is not on this machine; install the package `redis-server`")
"""


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 passed, 2 skipped"), ("1", "1 failed, 1 passed, 1 error")])
def test_a_test_without_its_server_is_skipped_by_name_and_fails_on_ci(ci: str, outcome: str, tmp_path: Path) -> None:
    conftest = (ROOT / "tests" / "conftest.py").read_text()
    missing = "servers.shared._STARTERS['postgresql'] = missing"
    (tmp_path / "conftest.py").write_text(f"{conftest}\n{MISSING}\n{missing}\n")
    (tmp_path / "test_beside.py").write_text(BESIDE)
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    command += ["-c", "/dev/null", str(tmp_path)]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}

    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False).stdout

    assert outcome in told
    assert "install the package `postgresql`" in told
    assert "install the package `redis-server`" in told


def test_a_place_belongs_to_a_folder_and_is_empty_again_once_cleared(tmp_path: Path) -> None:
    url = places.place("redis", tmp_path / "a")
    client = redis.Redis.from_url(places.server_url("redis"))
    prefix = url.partition("prefix=")[2].partition("&")[0]
    client.set(f"{{{prefix}}}:x", 1)

    assert places.place("redis", tmp_path / "a") == url != places.place("redis", tmp_path / "b")
    places.clear(tmp_path / "a")
    assert client.exists(f"{{{prefix}}}:x") == 0
