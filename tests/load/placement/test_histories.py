"""Random histories of runs, nodes and leaders: whatever happens, no core is used twice, and all runs end."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from mainstay.control import Completion, Control
from mainstay.control.check import check
from mainstay.load.placement import RunPlacementDuty
from mainstay.model import Job
from mainstay.stores import JobStore, open_store
from mainstay.testing import VirtualClock
from tests.load.placement.runs import Cluster, SliceNode, calls

SEEDS = range(40)
STEPS = 60
SHARES = ("low", "normal", "high", "exclusive", "auto")


class History:
    """One random history. It remembers what nodes and leaders do not."""

    def __init__(self, store: JobStore, seed: int) -> None:
        self.store = store
        self.rng = random.Random(seed)
        self.cluster = Cluster(store)
        self.cores: dict[str, int] = {}
        self.jobs: list[str] = []
        self.alone: dict[str, bool] = {}
        self.sessions = 0

    async def run(self) -> None:
        await self.cluster.open()
        steps = [self.join, self.join, self.submit, self.submit, self.place, self.place, self.place, self.confirm]
        steps += [self.confirm, self.finish, self.finish, self.refuse, self.die, self.fail, self.cancel, self.wait]
        steps += [self.another_leader, self.lead_on]
        for _ in range(STEPS):
            await self.rng.choice(steps)()
            await self.check()
        await self.heal()

    async def join(self) -> None:
        name = f"n{self.rng.randrange(5)}"
        if name in self.cluster.nodes:
            return
        self.sessions += 1
        self.cores.setdefault(name, self.rng.choice([1, 2, 4, 8]))
        zone = {"zone": "ab"[int(name[1:]) % 2]}
        await self.cluster.node(name, self.cores[name], number=self.sessions, labels=zone)

    async def submit(self) -> None:
        share = self.rng.choice(SHARES)
        demand: dict[str, object] = {"most": self.rng.choice([1, 4, 100])}
        if self.rng.random() < 0.5:
            demand["processes"] = self.rng.choice([1, 2, 4])
        elif self.rng.random() < 0.3:
            demand["nodes"] = self.rng.choice([1, 2])
        if self.rng.random() < 0.4:
            demand["labels"] = {"zone": self.rng.choice("ab")}
        job_id = await self.cluster.submit(share=share, priority=self.rng.randrange(-1, 2), **demand)  # type: ignore[arg-type]
        self.jobs.append(job_id)
        self.alone[job_id] = share == "exclusive"

    async def place(self) -> None:
        await self.cluster.beat()
        await self.cluster.place()

    async def lead_on(self) -> None:
        """The manager claims the runs that got cores."""
        await self.cluster.control.claims.start(await self.cluster.claimed())

    async def another_leader(self) -> None:
        self.cluster.duty = RunPlacementDuty(Control(self.store))
        await self.cluster.duty.clean_up(await self.cluster.lead())

    async def confirm(self) -> None:
        for node in self.nodes():
            if self.rng.random() < 0.7:
                rows = await node.confirm()
                await node.start([row for row in rows if self.rng.random() < 0.5])

    async def finish(self) -> None:
        """A run ends at its leader, which releases its slices."""
        if not self.jobs:
            return
        job_id = self.rng.choice(self.jobs)
        job = await self.cluster.job(job_id)
        rows = await self.cluster.slices(job_id)
        at_work = [row for row in rows if row.status == "running"]
        if at_work and len(at_work) == sum(1 for row in rows if row.settled_ms is None):
            await self.cluster.control.attempts.complete([_done(row) for row in at_work])
            if job.status == "running":
                await self.cluster.control.attempts.complete([_done(job)])

    async def refuse(self) -> None:
        for node in self.nodes()[:1]:
            await node.give_back(await node.assigned())

    async def fail(self) -> None:
        for node in self.nodes()[:1]:
            held = [row for row in await self.held() if row.session == node.id and row.status == "running"]
            await node.fail(held[:1])

    async def die(self) -> None:
        for node in self.nodes()[:1]:
            del self.cluster.nodes[node.name]
            await node.die()

    async def cancel(self) -> None:
        if self.jobs:
            job = await self.cluster.job(self.rng.choice(self.jobs))
            if job.settled_ms is None:
                await self.cluster.control.operations.cancel(job.id, actor="ann", reason="no need")

    async def wait(self) -> None:
        self.cluster.pass_time(self.rng.choice([1, 5, 21, 31]))
        await self.cluster.beat()

    def nodes(self) -> list[SliceNode]:
        nodes = list(self.cluster.nodes.values())
        self.rng.shuffle(nodes)
        return nodes

    async def held(self) -> list[Job]:
        return [row for job in self.jobs for row in await self.cluster.slices(job) if row.session is not None]

    async def check(self) -> None:
        """What holds at every moment."""
        used: Counter[str] = Counter()
        beside: dict[str, set[str]] = {}
        for job_id in self.jobs:
            rows = [row for row in await self.cluster.slices(job_id) if row.session is not None]
            nodes = [str(row.session).split(".")[0] for row in rows]
            first = [node for row, node in zip(rows, nodes, strict=True) if row.token == 1]
            assert len(set(first)) == len(first), "one slice of a run on a node, unless it was placed again"
            for row, node in zip(rows, nodes, strict=True):
                used[node] += calls(row).cores
                beside.setdefault(node, set()).add(job_id)
        assert all(cores <= self.cores[node] for node, cores in used.items()), "no core twice"
        for jobs in beside.values():
            assert len(jobs) == 1 or not any(self.alone[job_id] for job_id in jobs), "an exclusive run is alone"

    async def heal(self) -> None:
        """All nodes are back and everything that runs ends: then no run waits that the nodes can hold."""
        for name in range(5):
            if f"n{name}" not in self.cluster.nodes:
                self.sessions += 1
                self.cores.setdefault(f"n{name}", 8)
                zone = {"zone": "ab"[name % 2]}
                await self.cluster.node(f"n{name}", self.cores[f"n{name}"], number=self.sessions, labels=zone)
        for _ in range(200):
            self.cluster.pass_time(31)
            await self.cluster.beat()
            await self.place()
            await self.confirm()
            await self.lead_on()
            await self.end_all()
            await self.check()
            left = [job for job in [await self.cluster.job(job_id) for job_id in self.jobs] if job.settled_ms is None]
            if all("it needs" in (job.reason or "") for job in left):
                break
        else:
            pytest.fail(f"these runs still wait: {[(job.status, job.reason) for job in left]}")
        await self.cluster.duty.clean_up(await self.cluster.lead())
        await self.place()
        for job_id in self.jobs:
            if (await self.cluster.job(job_id)).settled_ms is not None:
                assert all(row.settled_ms is not None for row in await self.cluster.slices(job_id))

    async def end_all(self) -> None:
        for job_id in self.jobs:
            job, rows = await self.cluster.job(job_id), await self.cluster.slices(job_id)
            if job.status not in ("running", "cancelling") or any(row.status == "dispatched" for row in rows):
                continue
            await self.cluster.control.attempts.complete([_done(row) for row in rows if row.status == "running"])
            if all(row.status in ("succeeded", "failed", "cancelled", "quarantined") for row in rows):
                await self.cluster.control.attempts.complete([_done(job)])


def _done(row: Job) -> Completion:
    return Completion(row, None)


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happens_no_core_is_used_twice_and_no_run_is_forgotten(seed: int) -> None:
    store = await open_store("memory:", clock=VirtualClock())
    try:
        await History(store, seed).run()
        assert (await check(store)).violations == ()
    finally:
        await store.close()
