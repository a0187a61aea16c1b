"""Storage that is away: a batch stays where it is, backs off, and goes on by itself. Nothing ever fails for it.

The storage is a real server that is stopped and started; the waits pass in virtual time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count
from typing import Any

import pytest

import servers
from mainstay import App, BatchRun, Outputs, grid
from mainstay.batch import unit_handler
from mainstay.errors import StoreError, StoreUnavailable
from mainstay.outputs.blobs import Files
from mainstay.stores.versioned import objects
from mainstay.testing import Harness
from servers.azurite import Azurite, azure_url
from tests.batch.studies import all_rows, outputs_of, path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SUCCEEDED = ["pending", "running", "finalizing", "validating", "succeeded"]
_numbers = count()


class Storage:
    """A server that can be told to be away."""

    def __init__(self, server: Azurite) -> None:
        self._server = server
        self.up = True

    def stop(self) -> None:
        if self.up:
            self._server.stop()
            self.up = False

    def start(self) -> None:
        if not self.up:
            self._server.start()
            self.up = True

    def url(self) -> str:
        return azure_url(self._server.url(), f"t{next(_numbers)}") + "&tries=1"


@pytest.fixture(scope="module")
def server() -> Iterator[Azurite]:
    with servers.folder("mainstay-batch-") as place:
        made = Azurite(place)
        yield made
        made.stop()


@pytest.fixture
async def storage(server: Azurite) -> AsyncIterator[Storage]:
    made = Storage(server)
    await objects.prepare(made.url())
    yield made
    made.start()


class Study:
    """Four units and two sums. What runs is written down; `then` is done when it has run for the first time."""

    def __init__(self, storage: Storage) -> None:
        self.app = App("memory:", outputs=storage.url())
        self.ran: list[str] = []
        self.then: dict[str, Any] = {}

        def run(what: str) -> None:
            self.ran.append(what)
            self.then.pop(what, lambda: None)()

        def sum_up(params: dict, runs: list) -> dict:
            run(f"sum {params['n']}")
            return {"sum": sum(int(one.read("result")) for one in runs)}

        @self.app.batch(name="study", outputs={"result": "result.txt"}, aggregate=sum_up, retries=0, version="1")
        def study(params: dict, seed: int, out: Outputs) -> None:
            run(f"{params['n']} {seed}")
            out.save("result", str(seed).encode())

        self.batch = study

    async def submit(self) -> BatchRun:
        return await self.app.submit_batch(self.batch, params=grid(n=[1, 2]), seeds=2)

    async def nothing_failed(self, run: BatchRun) -> bool:
        rows = await all_rows(self.app.control, run.id)
        return {(row.failures, row.crashes) for row in rows} == {(0, 0)}


@pytest.fixture
def study(storage: Storage) -> Study:
    return Study(storage)


@pytest.fixture
def box(study: Study) -> Iterator[Harness]:
    with Harness(study.app, concurrency=1, patience="30s") as box:
        yield box


async def backoffs(study: Study, run: BatchRun) -> list[int]:
    """How long the driver waited each time that it could not look, in seconds."""
    [driver] = [row for row in await all_rows(study.app.control, run.id) if row.name.endswith(":driver")]
    events = await study.app.control.jobs.events(driver.id)
    claims = [event.at_ms for event in events if event.to == "running" and event.flag != "note"]
    waits = ("cannot be checked", "could not be checked")
    put_off = [event.at_ms for event in events if event.to == "pending" and any(w in str(event.reason) for w in waits)]
    return [round((min(at for at in claims if at > put) - put) / 1000) for put in put_off]


async def test_a_study_is_refused_while_the_storage_is_away_and_no_job_is_left(
    study: Study, storage: Storage, box: Harness
) -> None:
    storage.stop()

    with pytest.raises(StoreUnavailable):
        await study.submit()

    assert box.submitted() == []


async def test_storage_that_is_away_during_planning_is_waited_for(study: Study, storage: Storage, box: Harness) -> None:
    run = await study.submit()
    storage.stop()
    await box.drain(until="5m")
    away = await run.status()

    storage.start()
    await box.drain()

    assert away.job.status == "running"
    assert "cannot be checked" in away.waits
    assert await backoffs(study, run) == [10, 20, 40, 80, 160], "doubling"
    assert await path(study.app.control, run.id) == SUCCEEDED
    assert sorted(study.ran) == ["1 0", "1 1", "2 0", "2 1", "sum 1", "sum 2"]
    assert await study.nothing_failed(run)


async def test_storage_that_goes_away_while_units_run_puts_them_off_and_fails_none(
    study: Study, storage: Storage, box: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first to run loses it before it publishes; those after it cannot even look whether they are needed."""
    monkeypatch.setattr(unit_handler, "_PATIENCE_S", 0.0)
    run = await study.submit()
    study.then["1 0"] = storage.stop
    await box.drain(until="1m")
    away = await run.status()

    storage.start()
    await box.drain()

    assert (away.job.status, away.units.waiting, away.units.failed) == ("running", 4, 0)
    assert await path(study.app.control, run.id) == SUCCEEDED
    assert study.ran.count("1 0") == 2, "what it had made was let go of in the end"
    assert await study.nothing_failed(run)


class ComesBack:
    """Storage that is there again when somebody has met its absence once."""

    def __init__(self, blobs: Any, storage: Storage) -> None:
        self._blobs = blobs
        self._storage = storage
        self._met = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    async def find(self, folders: Sequence[str]) -> list[Files | StoreError]:
        if self._met:
            self._storage.start()
        found: list[Files | StoreError] = await self._blobs.find(folders)
        self._met = self._met or any(isinstance(one, StoreError) for one in found)
        return found


async def test_a_unit_holds_on_to_what_it_made_while_the_storage_is_away_for_a_moment(
    study: Study, storage: Storage, box: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_handler, "_FIRST_WAIT_S", 0.01)
    run = await study.submit()
    store = await outputs_of(study.app, run)
    store.blobs = ComesBack(store.blobs, storage)  # type: ignore[assignment]
    study.then["1 0"] = storage.stop

    await box.drain()

    assert storage.up, "it was met while it was away"
    assert await path(study.app.control, run.id) == SUCCEEDED
    assert study.ran.count("1 0") == 1
    assert await study.nothing_failed(run)


async def test_storage_that_goes_away_during_an_aggregation_leaves_the_batch_finalizing(
    study: Study, storage: Storage, box: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_handler, "_PATIENCE_S", 0.0)
    run = await study.submit()
    study.then["sum 1"] = storage.stop
    await box.drain(until="10m")
    away = await run.status()

    storage.start()
    await box.drain()

    assert (away.job.status, away.aggregations["sum_up"].failed) == ("finalizing", 0)
    assert await path(study.app.control, run.id) == SUCCEEDED
    assert await study.nothing_failed(run)
    assert (await run.read("sum_up.json", {"n": 1})).split() == [b"{", b'"sum":', b"1", b"}"]


async def until_validation(study: Study, storage: Storage, box: Harness) -> BatchRun:
    """A batch that is done but for its validation, and storage that is away."""
    run = await study.submit()
    while not {"sum 1", "sum 2"} <= {*study.ran}:
        await box.drain(until="0s")
        box.advance("100ms")
    storage.stop()
    return run


async def test_storage_that_is_away_during_validation_keeps_the_batch_validating_until_it_is_back(
    study: Study, storage: Storage, box: Harness
) -> None:
    run = await until_validation(study, storage, box)
    await box.drain(until="30m")
    away = await run.status()

    storage.start()
    await box.drain()

    assert away.job.status == "validating"
    assert "could not be checked" in away.waits
    assert await backoffs(study, run) == [10, 20, 40, 80, 160, 300, 300, 300, 300, 300], "doubling, to five minutes"
    assert await path(study.app.control, run.id) == SUCCEEDED
    assert len(study.ran) == 6
    assert await study.nothing_failed(run)


async def test_a_person_need_not_wait_for_the_next_look_after_an_outage(
    study: Study, storage: Storage, box: Harness
) -> None:
    run = await until_validation(study, storage, box)
    await box.drain(until="30m")

    meanwhile = await run.validate(force=True)
    between = (await run.status()).job.status
    storage.start()
    found = await run.validate(force=True)

    assert (meanwhile.verdict, between) == ("unknown", "validating")
    assert found.verdict == "succeeded"
    assert await path(study.app.control, run.id) == SUCCEEDED, "at once, without a worker"
    await box.drain()
    assert await study.nothing_failed(run)
