"""Workers on a bucket, as an operator starts them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import servers
from mainstay.control import JobRequest
from mainstay.stores.registry import JobRegistry
from mainstay.stores.versioned import prepare_versioned
from servers.azurite import Azurite
from servers.programs import ServerMissing
from tests.chaos.fleet import HERE, Fleet
from tests.conformance.adapters import BUCKETS
from tests.places import without

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def command(fleet: Fleet, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mainstay", *words],
        env=fleet.environment,
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )


async def test_tasks_are_submitted_run_listed_and_checked_in_a_bucket(tmp_path: Path) -> None:
    s3 = BUCKETS["s3"]
    assert s3.prepare is not None
    await s3.prepare(s3.at(tmp_path))
    fleet = await Fleet(tmp_path, s3.at(tmp_path)).open()
    try:
        worker = fleet.worker()
        await fleet.ready()
        made = await fleet.control.jobs.submit_many([JobRequest("chaos_tasks.quick", {"number": n}) for n in range(20)])
        for one in made:
            assert (await fleet.settled(one.id)).status == "succeeded"
        assert len(fleet.traces(what="start")) == 20
        assert worker.stop() == 0

        listed = command(fleet, "jobs", "list", "--json")
        assert {job["status"] for job in json.loads(listed.stdout)["jobs"]} == {"succeeded"}
        checked = command(fleet, "check")
        assert (checked.returncode, "20 rows" in checked.stdout) == (0, True), checked.stdout + checked.stderr
        store = fleet.control.store
        assert isinstance(store, JobRegistry)
        assert (await store.about()).commits < 20, "what happens together is committed together"
    finally:
        await fleet.close()


@pytest.fixture
def azurite() -> Iterator[Azurite]:
    with servers.folder("mainstay-registry-") as place:
        try:
            made = Azurite(place)
        except ServerMissing as error:
            without(error)
        yield made
        made.stop()


async def test_what_a_worker_could_not_write_before_it_had_to_stop_counts_after_a_sync(
    azurite: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSTAY_STATE", str(tmp_path / "state"))
    url = azurite.database("aside") + "&timeout=1s&connect_timeout=1s&tries=1"
    await prepare_versioned(url)
    fleet = await Fleet(tmp_path, url).open()
    try:
        worker = fleet.worker()
        await fleet.ready()
        job = (await fleet.control.jobs.submit("chaos_tasks.waits", {"gate_name": "go"})).id
        await fleet.traced(job)
        azurite.stop()
        fleet.open_gate("go")
        await fleet.traced(job, "end")
        worker.stop()
        [file] = (tmp_path / "state" / "aside").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        azurite.start()
        assert (await fleet.control.jobs.get(job)).status == "running"

        synced = command(fleet, "jobs", "sync")

        assert (synced.returncode, "kept as succeeded, written now" in synced.stdout) == (0, True), synced
        row = await fleet.control.jobs.get(job)
        assert (row.status, row.token) == ("succeeded", 1)
        assert list((tmp_path / "state" / "aside").iterdir()) == []
        assert "kept" not in command(fleet, "jobs", "sync").stdout
    finally:
        await fleet.close()


async def test_work_goes_on_while_the_bucket_is_away_and_counts_when_it_is_back(
    azurite: Azurite, tmp_path: Path
) -> None:
    url = azurite.database("away") + "&timeout=1s&connect_timeout=1s&tries=1"
    await prepare_versioned(url)
    fleet = await Fleet(tmp_path, url).open()
    try:
        worker = fleet.worker()
        await fleet.ready()
        job = (await fleet.control.jobs.submit("chaos_tasks.waits", {"gate_name": "go"})).id
        await fleet.traced(job)
        engines = worker.engines

        azurite.stop()
        fleet.open_gate("go")
        await fleet.traced(job, "end")
        azurite.start()

        row = await fleet.settled(job)
        assert (row.status, row.token, len(fleet.traces(job, "start"))) == ("succeeded", 1, 1)
        assert worker.engines == engines, "nobody was restarted"
    finally:
        await fleet.close()
