"""Programs that end right after their last request to a bucket end in good order."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mainstay.storage import runtime_exit
from mainstay.stores.versioned import prepare_versioned
from servers.moto import s3_url
from tests.places import server_url

PROGRAM = """
import asyncio, os, sys
from mainstay.stores.versioned import open_versioned

async def main():
    store = await open_versioned(sys.argv[1])
    await asyncio.gather(*(store.create_if_absent(f"{os.getpid()}-{n}", b"1") for n in range(3)))
    await store.list_keys(limit=1)

asyncio.run(main())
"""
#: without the wait one in four dies, so all of them live by chance in one of a hundred runs
TIMES = 16


async def test_a_short_program_on_a_bucket_ends_with_zero() -> None:
    url = s3_url(server_url("moto"), "exit")
    await prepare_versioned(url)

    def run(_: int) -> tuple[int, bytes]:
        done = subprocess.run([sys.executable, "-c", PROGRAM, url], capture_output=True, check=False)
        return done.returncode, done.stderr

    with ThreadPoolExecutor(4) as several:
        ended = list(several.map(run, range(TIMES)))

    assert ended == [(0, b"")] * TIMES


def test_where_threads_cannot_be_watched_the_exit_waits_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(runtime_exit, "_TASKS", Path("/nonexistent"))
    monkeypatch.setattr(time, "sleep", waited.append)

    runtime_exit.settle()

    assert waited == [0.002, 0.2]


def test_the_exit_waits_until_all_are_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([True, False, *[True] * 5, False])
    monkeypatch.setattr(runtime_exit, "_all_asleep", lambda: next(looks))

    runtime_exit.settle()

    assert list(looks) == [False], "five looks in a row were enough"


def test_the_exit_does_not_wait_for_longer_than_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = iter([0.0, 0.5, 0.9, 1.0, 5.0])
    monkeypatch.setattr(runtime_exit, "_all_asleep", lambda: False)
    monkeypatch.setattr(time, "monotonic", lambda: next(times_s))

    runtime_exit.settle()

    assert list(times_s) == [5.0]
