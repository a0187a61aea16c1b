"""A worker that is a node, with real processes on SQLite: its node engine takes placed work, and only that."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from mainstay.control import PLACEMENT, Control
from mainstay.control.payload import encoded
from mainstay.model import PLACE_QUEUE, IdSource, Job, Session
from mainstay.testing import new_job
from tests.worker.crews import ENGINE, Crew, alive, crew_on, kill
from tests.worker.program import LIMIT

PLACING = "tests.worker.crew_program:placing"
MIXED = "tests.worker.crew_program:mixed"
PLAIN = "tests.worker.crew_program:stage"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "jobs.db"
    monkeypatch.setenv("CREW_STORE", f"sqlite:///{path}")
    return path


class Units:
    """Units in the queue of placed work, below one job."""

    def __init__(self, control: Control) -> None:
        self._store = control.store
        self._ids = IdSource(random.Random(5))
        self._parent: str | None = None

    async def add(self, name: str, **arguments: Any) -> str:
        if self._parent is None:
            parent = new_job(self._store.clock, self._ids, name="crew", queue=PLACE_QUEUE, chain=self._store.chain)
            await self._store.insert([parent])
            self._parent = parent.job.id
        unit = new_job(
            self._store.clock,
            self._ids,
            name=name,
            queue=PLACE_QUEUE,
            parent=self._parent,
            payload=encoded(arguments, field="payload", limit=LIMIT),
            chain=self._store.chain,
        )
        await self._store.insert([unit])
        return unit.job.id

    async def row(self, unit: str) -> Job:
        (row,) = await self._store.get([unit])
        assert row is not None
        return row

    async def path(self, unit: str) -> list[str]:
        return [event.to for event in await self._store.events(unit) if event.flag != "note"]


async def _until_started(crew: Crew, units: Units, unit: str, *, token: int) -> Job:
    async def started() -> bool:
        row = await units.row(unit)
        return row.token >= token and row.started_ms is not None

    await crew.until(started)
    return await units.row(unit)


async def _until_status(crew: Crew, units: Units, unit: str, status: str) -> Job:
    async def reached() -> bool:
        return (await units.row(unit)).status == status

    await crew.until(reached)
    return await units.row(unit)


async def _session_of(crew: Crew, row: Job) -> Session:
    return next(each for each in await crew.control.store.sessions() if each.id == row.session)


async def test_a_node_confirms_and_runs_a_unit_and_gives_it_back_when_its_engine_is_killed(
    path: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with crew_on(path, target=PLACING, command=ENGINE, node="n1", labels={"zone": "a"}) as crew:
        units = Units(crew.control)
        unit = await units.add("waits_for", path=str(gate))
        first = await _until_started(crew, units, unit, token=1)
        session = await _session_of(crew, first)
        assert crew.supervisor.pids == [session.pid], "a program without other work has the node engine only"
        assert (session.node, session.labels) == ("n1", {"zone": "a"})

        kill(session.pid)
        second = await _until_started(crew, units, unit, token=2)
        assert second.session != first.session
        assert (second.crashes, second.releases) == (1, 0)
        gate.touch()
        await _until_status(crew, units, unit, "succeeded")
        lived = ["dispatched", "running"]
        assert await units.path(unit) == ["pending", *lived, "failed", "pending", *lived, "succeeded"]


async def test_a_node_worker_also_claims_plain_jobs_in_its_other_engines(path: Path) -> None:
    async with crew_on(path, target=PLAIN, command=ENGINE, node="n1") as crew:
        job = (await crew.control.jobs.submit("goes_on", {})).id
        await crew.until_started([job])
        (row,) = await crew.jobs([job])
        holder = await _session_of(crew, row)
        others = [each for each in await crew.control.store.sessions() if each.id != holder.id]

        assert [each.node for each in others] == ["n1"]
        assert holder.node == ""
        assert len(crew.supervisor.pids) == 2


async def test_a_restart_hands_the_node_to_a_new_engine_and_the_worker_goes_on(path: Path) -> None:
    async with crew_on(path, target=PLACING, command=ENGINE, node="n1") as crew:
        units = Units(crew.control)
        unit = await units.add("goes_on")
        first = await _until_started(crew, units, unit, token=1)
        old = await _session_of(crew, first)

        crew.supervisor.roll()
        second = await _until_started(crew, units, unit, token=2)
        assert (second.releases, second.crashes, second.losses) == (1, 0, 0)
        assert (await _session_of(crew, second)).node == "n1"

        async def gone() -> bool:
            return not alive(old.pid) and len(crew.supervisor.pids) == 1

        await crew.until(gone)
        assert not crew.running.done()


async def test_a_drain_gives_placed_work_back_and_the_lead_up(path: Path) -> None:
    async with crew_on(path, target=PLACING, command=ENGINE, node="n1", grace_s=0.2) as crew:
        units = Units(crew.control)
        unit = await units.add("goes_on")
        await _until_started(crew, units, unit, token=1)

        assert await crew.stop() == 0

        row = await units.row(unit)
        assert (row.status, row.session, row.crashes, row.losses) == ("pending", None, 0, 0)
        assert await crew.control.store.sessions() == []
        assert (await crew.control.store.lead(PLACEMENT, "next", 10.0)).holder == "next"


async def _until_cores_are_held(crew: Crew, units: Units, unit: str) -> Job:
    async def held() -> bool:
        return (await units.row(unit)).checkpoint is not None

    await crew.until(held)
    return await units.row(unit)


async def _until_beaten(crew: Crew, times: int) -> None:
    """Until every engine has sent so many heartbeats from now on."""
    first = {session.id: session.beat_ms for session in await crew.control.store.sessions()}
    every_ms = 200

    async def beaten() -> bool:
        now = {session.id: session.beat_ms for session in await crew.control.store.sessions()}
        return all(now[id_] >= at + times * every_ms for id_, at in first.items() if id_ in now)

    await crew.until(beaten)


async def test_a_node_claims_no_plain_job_while_its_slices_hold_every_core(path: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with crew_on(path, target=MIXED, command=ENGINE, node="n1", cores=2, concurrency=2) as crew:
        units = Units(crew.control)
        await crew.jobs(await _done(crew))
        slice_ = await units.add("holds_cores", cores=2, path=str(gate))
        await _until_cores_are_held(crew, units, slice_)
        await _until_beaten(crew, 1)

        (plain,) = await crew.submit("takes", payload={"seconds": 0.0})
        await _until_beaten(crew, 4)
        (waiting,) = await crew.jobs([plain])
        gate.touch()

        assert waiting.status == "pending"
        await crew.control.jobs.wait(plain)
        await _until_status(crew, units, slice_, "succeeded")


async def test_the_cores_of_a_killed_node_engine_are_free_for_plain_jobs(path: Path, tmp_path: Path) -> None:
    async with crew_on(path, target=MIXED, command=ENGINE, node="n1", cores=2, concurrency=2) as crew:
        units = Units(crew.control)
        await crew.jobs(await _done(crew))
        slice_ = await units.add("holds_cores", cores=2, path=str(gate := tmp_path / "gate"))
        row = await _until_cores_are_held(crew, units, slice_)
        (plain,) = await crew.submit("takes", payload={"seconds": 0.0})

        kill((await _session_of(crew, row)).pid)
        gate.touch()

        assert (await crew.control.jobs.wait(plain)).status == "succeeded"


async def _done(crew: Crew) -> list[str]:
    """Jobs that the node has run: both of its engines are up."""
    ids = await crew.submit("takes", payload={"seconds": 0.0})
    for id_ in ids:
        await crew.control.jobs.wait(id_)
    return ids
