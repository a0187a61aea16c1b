"""A node job whose members are in every phase, on a store that a test gives: for all that shows node jobs."""

from __future__ import annotations

from typing import Any

from mainstay.control import take_unit_back
from mainstay.lifecycle import Move
from mainstay.model import Job, Progress
from mainstay.node import NodePolicy
from mainstay.stores import Change, ClaimReport, JobStore
from tests.node.fleet import FakeNode, submit, units_of

#: the nodes that have a phase of their own; the others wait for a confirmation
NAMES = ("assigned", "cancelled", "failed", "lost", "running", "succeeded", "waiting")


class PhasedJob:
    """A node job, and its nodes by name."""

    def __init__(self, store: JobStore, job_id: str, nodes: dict[str, FakeNode]) -> None:
        self.store = store
        self.id = job_id
        self.nodes = nodes

    async def unit_id(self, node: str) -> str:
        return (await units_of(self.store, self.id))[f"node/{node}"].id

    async def round(self) -> None:
        """Let the leader do what is next."""
        leader = self.nodes["succeeded"]
        await leader.duty().round(await leader.lead())


async def phased_job(
    store: JobStore, *, policy: NodePolicy | None = None, more: int = 0, standing: bool = True, **options: Any
) -> PhasedJob:
    """A job with a node in each phase, and `more` further nodes that have not confirmed yet. Node `succeeded` leads."""
    names = [*NAMES, *(f"n{number:03}" for number in range(more))]
    nodes = {name: FakeNode(store, name, place + 1) for place, name in enumerate(names)}
    for name, node in nodes.items():
        labels = {"zone": "a" if name < "n" else "b"}
        await node.open(worker=f"worker-{name}", host="box-7", labels=labels, standing=standing, lease_s=3600.0)
    job_id = await submit(store, policy or NodePolicy(quorum_wait_s=3600.0, stragglers_s=3600.0), **options)
    job = PhasedJob(store, job_id, nodes)
    await job.round()
    units = await units_of(store, job_id)
    confirmed = {
        name: await nodes[name].confirm([units[f"node/{name}"]]) for name in ("succeeded", "failed", "running", "lost")
    }
    await nodes["succeeded"].complete(confirmed["succeeded"])
    await nodes["failed"].fail(confirmed["failed"])
    [running] = confirmed["running"]
    report = ClaimReport(
        job_id=running.id,
        session=nodes["running"].id,
        token=running.token,
        started_ms=store.clock.now_ms(),
        progress=Progress(done=3, total=4, message="packing"),
    )
    await store.beat([nodes["running"].id], [report])
    await store.close_session(nodes["lost"].id)
    await nodes["lost"].control.sweeper.sweep()
    await _move(nodes["waiting"], units["node/waiting"], take_unit_back(units["node/waiting"]))
    await _move(nodes["cancelled"], units["node/cancelled"], (Move(to="cancelled", reason="stopped by an operator"),))
    return job


async def _move(node: FakeNode, unit: Job, moves: tuple[Move, ...]) -> None:
    """What a node writes about the unit that it holds."""
    change = Change(before=unit, moves=moves, actor=node.id, at_ms=node.store.clock.now_ms(), holder=node.id)
    [result] = await node.store.apply([change])
    assert result.outcome == "applied", result


__all__ = ["NAMES", "PhasedJob", "phased_job"]
