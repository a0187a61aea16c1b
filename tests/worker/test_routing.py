"""Programs that share a queue: each job goes to a worker that has its task, in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay import App
from mainstay.control.check import check
from mainstay.control.explain import explained
from mainstay.control.unserved_jobs import unserved
from mainstay.testing import MemoryStore, VirtualClock
from mainstay.worker.engine import Engine
from mainstay.worker.program import offer_of
from mainstay.worker.supervisor import UNFIT
from tests.worker.crews import ENGINE, Crew, crew_on

PROGRAMS = {
    "shop_a": '@app.task(name="a")\nasync def a() -> str:\n    return "a"\n',
    "shop_b": '@app.task(name="b")\nasync def b() -> str:\n    return "b"\n',
    "shop_none": "",
    "shop_nodes": '@app.node_job(name="n")\nclass N:\n    def local(self, node: Node) -> None: ...\n',
}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store, and programs on it that engines can import."""
    path = tmp_path / "jobs.db"
    for name, tasks in PROGRAMS.items():
        text = f'from mainstay import App, Node\n\napp = App("sqlite:///{path}")\n\n\n{tasks}'
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return path


async def stories(crew: Crew, ids: list[str]) -> list[list[str]]:
    return [[event.to for event in await crew.control.store.events(job_id)] for job_id in ids]


async def at_work(crew: Crew, n: int) -> None:
    async def there() -> bool:
        return len(await crew.control.store.sessions()) == n

    await crew.until(there)


async def test_of_two_programs_on_one_queue_each_gets_its_own_jobs(path: Path) -> None:
    async with (
        crew_on(path, target="shop_a:app", command=ENGINE) as one,
        crew_on(path, target="shop_b:app", command=ENGINE) as other,
    ):
        await at_work(one, 2)
        ids = []
        for _ in range(60):
            ids += await one.submit("b", payload={})
        mine = await one.submit("a", payload={})

        for job_id in [*ids, *mine]:
            await other.control.jobs.wait(job_id)

        # none was put off, given back or tried elsewhere first
        assert await stories(one, [*ids, *mine]) == [["pending", "running", "succeeded"]] * 61
        assert (await check(one.control.store)).violations == ()


async def test_a_task_that_a_deploy_adds_runs_as_soon_as_its_first_worker_is_up(path: Path) -> None:
    async with crew_on(path, target="shop_a:app", command=ENGINE) as old:
        await at_work(old, 1)
        ids = await old.submit("b", n=3, payload={})
        store = old.control.store

        async def seen() -> bool:
            return (await store.stats()).routed == {"default": {"b": 3}}

        await old.until(seen)
        told = (await explained(store, ids[0])).sections[1].sentences[0]
        assert told.startswith("No live worker of queue default knows b")
        (found,) = unserved(await store.stats(), await store.sessions(), store.clock.lease_ms())
        assert found.text == "no live worker knows b: 3 jobs wait in queue default"

        async with crew_on(path, target="shop_b:app", command=ENGINE) as new:
            for job_id in ids:
                await new.control.jobs.wait(job_id)

        assert await stories(old, ids) == [["pending", "running", "succeeded"]] * 3


async def test_a_program_without_tasks_does_not_start(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with crew_on(path, target="shop_none:app", command=ENGINE) as crew:
        assert await crew.running == UNFIT

    assert "shop_none:app has no tasks, studies or load tests" in caplog.text


async def test_a_program_of_node_jobs_does_not_start_without_the_name_of_its_node(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with crew_on(path, target="shop_nodes:app", command=ENGINE) as crew:
        assert await crew.running == UNFIT

    assert "shop_nodes:app has only node jobs, which run on nodes: name this one (--node NAME)" in caplog.text


async def test_sessions_say_what_they_serve(path: Path) -> None:
    async with crew_on(path, target="shop_a:app", command=ENGINE, queues=("mail", "default")) as crew:
        await at_work(crew, 1)
        (session,) = await crew.control.store.sessions()

    assert session.offer is not None
    assert session.offer.queues == ("mail", "default")
    assert session.offer.tasks == {"a": {"queue": "default"}}


async def test_a_task_that_is_added_while_a_worker_runs_is_offered_from_then_on() -> None:
    store = MemoryStore(VirtualClock())
    app = App("memory:")
    with app.using(store) as control:
        session = await control.claims.open_session(worker="w", offer=offer_of(app, ["default"]))
        engine = Engine(app, control, session, queues=["default"])
        await control.jobs.submit("late", {})
        assert await control.claims.claim(["default"], session.id, 1) == []

        app.task(name="late")(_late)
        await engine._session.renew_offer()

        assert [job.name for job in await control.claims.claim(["default"], session.id, 1)] == ["late"]
        engine.drain(0)
        await engine.stopped.wait()


async def _late() -> None: ...
