"""A change may name the version of the job that it is meant for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mainstay.errors import VersionChanged
from mainstay.model import Job

from .conftest import Bench

CHANGES: dict[str, Callable[[Bench, str, int], Awaitable[Job]]] = {
    "cancel": lambda bench, job_id, version: bench.control.operations.cancel(job_id, actor="ann", version=version),
    "retry": lambda bench, job_id, version: bench.control.operations.retry(job_id, actor="ann", version=version),
    "force": lambda bench, job_id, version: bench.control.operations.force(
        job_id, "failed", actor="ann", reason="r", version=version
    ),
    "priority": lambda bench, job_id, version: bench.control.operations.set_priority(
        job_id, 5, actor="ann", version=version
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_for_another_version_is_refused_and_writes_nothing(bench: Bench, change: Any) -> None:
    made = await bench.control.jobs.submit("a", delay="1h")
    await bench.control.operations.set_priority(made.id, 1, actor="bob")
    with pytest.raises(VersionChanged, match="is at version 2, but the change requires version 1") as refused:
        await change(bench, made.id, 1)
    assert (refused.value.wanted, refused.value.now) == (1, 2)
    assert (await bench.control.jobs.get(made.id)).version == 2
    moved = await change(bench, made.id, 2)
    assert moved.version > 2


async def test_whoever_is_overtaken_between_reading_and_writing_is_refused_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await bench.control.jobs.submit("a")
    apply = bench.store.apply

    async def overtaken(changes: Any, **more: Any) -> Any:
        monkeypatch.setattr(bench.store, "apply", apply)
        await bench.worker.operations.set_priority(made.id, 9, actor="bob")
        return await apply(changes, **more)

    monkeypatch.setattr(bench.store, "apply", overtaken)
    with pytest.raises(VersionChanged):
        await bench.control.operations.cancel(made.id, actor="ann", version=1)
    assert (await bench.control.jobs.get(made.id)).status == "pending"
