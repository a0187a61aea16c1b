"""A change that is meant for one version, on a job that somebody else moves between its check and its write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mainstay.batch.spec import Spec
from mainstay.batch.web.services import service_at
from mainstay.clock import SystemClock
from mainstay.outputs import ManifestGroup
from mainstay.stores import JobStore
from tests.conformance.adapters import ADAPTERS, Adapter
from tests.web.conftest import Server, serving

#: each store of its own code
STORES = [adapter for adapter in ADAPTERS if adapter.modules is None]


@pytest.fixture(params=STORES, ids=lambda adapter: adapter.name)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    adapter: Adapter = request.param
    async with serving(store=await adapter.open(tmp_path, SystemClock())) as found:
        yield found


async def partial_batch(server: Server, root: Path) -> str:
    """A batch that a person has called partial; its one unit lacks its output."""
    group = ManifestGroup(
        study="study", code="1", outputs={"result": "result.txt"}, params=[{"beta": 1}], pairs=[(0, 1)]
    )
    spec = Spec(
        study="study",
        code="1",
        outputs=f"file://{root}?sync=off",
        files=group.outputs,
        sets=1,
        units=1,
        expected=1,
        manifest="",
        plan=server.control.jobs.plan(),
    )
    made = await service_at(server.stores.first).submit(spec, [group], server.control.jobs.plan())
    await server.control.operations.force(made.id, "partial", actor="ann", reason="a test")
    return made.id


def meddle(store: JobStore, monkeypatch: pytest.MonkeyPatch, change: Callable[[], Awaitable[object]]) -> None:
    """Have this done once, right before the next write."""
    changes = [change]

    def after_it(write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def written(*args: Any, **options: Any) -> Any:
            if changes:
                await changes.pop()()
            return await write(*args, **options)

        return written

    for name in ("apply", "delete"):
        monkeypatch.setattr(store, name, after_it(getattr(store, name)))


@pytest.mark.parametrize(
    ("method", "part"), [("DELETE", ""), ("POST", "/validate"), ("POST", "/resume"), ("POST", "/cancel")]
)
async def test_a_job_that_is_moved_right_before_the_write_is_left_as_it_is(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, part: str
) -> None:
    job_id = await partial_batch(server, tmp_path / "outputs")
    path, before = f"/api/v1/jobs/{job_id}", await server.control.jobs.get(job_id)

    async def move() -> None:
        await server.control.operations.set_priority(job_id, 7, actor="bob")

    meddle(server.control.store, monkeypatch, move)
    answer = await server.client.request(method, path + part, headers={"If-Match": f'"{before.version}"'})
    assert (answer.status_code, answer.json()["type"]) == (412, "version_changed")
    assert answer.json()["version"] == before.version + 1
    now = await server.control.jobs.get(job_id)
    assert (now.status, now.priority, now.version) == ("partial", 7, before.version + 1)

    seen = {"If-Match": f'"{now.version}"'}
    assert (await server.client.request(method, path + part, headers=seen)).status_code == 200


async def test_a_job_that_is_gone_by_the_write_is_not_found(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = (await server.control.jobs.submit("a")).id

    async def take_away() -> None:
        await server.control.operations.delete(job_id, actor="bob", reason="quicker")

    meddle(server.control.store, monkeypatch, take_away)
    answer = await server.client.delete(f"/api/v1/jobs/{job_id}", headers={"If-Match": '"1"'})
    assert (answer.status_code, answer.json()["type"]) == (404, "job_not_found")
