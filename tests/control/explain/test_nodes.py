"""What is said of a job in a cluster: what its managers know, and its store does not."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstay.control import Control
from mainstay.control.explain import ClusterFacts, Explanation, NodeEvent, NodeFact, explained
from mainstay.model import Offer, Session
from mainstay.node import NodePolicy
from mainstay.testing import MemoryStore, VirtualClock
from tests.node.fleet import FakeNode, submit

CHANCE = "0123456789abcdef0123456789abcdef"


class Told:
    """A store with sessions of nodes, and what managers say about the nodes."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.control = Control(self.store)
        self.facts = ClusterFacts(at_ms=self.clock.now_ms(), placement="m1")

    async def node(self, name: str, state: str = "active", *, tasks: tuple[str, ...] = ("send",), **fields: Any) -> str:
        """A node with a session in the store; its id."""
        session = Session(
            id=f"{name}.{CHANCE}",
            worker=name,
            host="box",
            standing=True,
            started_ms=self.clock.now_ms(),
            beat_ms=self.clock.lease_ms(),
            offer=Offer(queues=("mail",), tasks={task: {} for task in tasks}),
        )
        await self.store.open_session(session)
        at_ms = self.clock.now_ms()
        given = {"host": "box", "since_ms": at_ms - 60_000, "heard_ms": at_ms - 1_000, **fields}
        self.know(nodes=(*self.facts.nodes, NodeFact(name=name, state=state, sessions=(session.id,), **given)))
        return session.id

    def know(self, **fields: Any) -> None:
        self.facts = msgspec.structs.replace(self.facts, **fields)

    async def submit(self) -> str:
        return (await self.control.jobs.submit("send", {}, queue="mail")).id

    async def claim(self, session: str) -> None:
        await self.control.claims.start(await self.control.claims.claim(["mail"], session, 1))

    async def explain(self, job: str, *, cluster: bool = True) -> Explanation:
        self.know(at_ms=self.clock.now_ms())
        return await explained(self.store, job, self.facts if cluster else None)


def section(found: Explanation, title: str) -> str:
    return " ".join(sentence for part in found.sections if part.title == title for sentence in part.sentences)


async def test_a_job_that_runs_names_its_node_and_when_it_was_heard() -> None:
    told = Told()
    session = await told.node("n1")
    job = await told.submit()
    await told.claim(session)
    told.clock.advance(5)
    found = await told.explain(job)
    assert "n1 (on box) has held it for 5s; node n1 on box has been active for 1m5s, last heard 6s ago." in section(
        found, "now"
    )
    assert section(found, "waits for") == ""


async def test_without_a_cluster_no_heartbeat_of_a_node_is_claimed() -> None:
    told = Told()
    session = await told.node("n1")
    job = await told.submit()
    await told.claim(session)
    told.clock.advance(3600)
    now = section(await told.explain(job, cluster=False), "now")
    assert "as a session of a node, whose heartbeats only managers see" in now
    assert "its last heartbeat" not in now


async def test_a_job_on_a_node_that_is_away_says_who_takes_it_back_and_when() -> None:
    told = Told()
    session = await told.node("n1")
    job = await told.submit()
    await told.claim(session)
    [node] = told.facts.nodes
    told.know(nodes=(msgspec.structs.replace(node, state="away", reason="no manager has heard it for 12 s"),))
    found = await told.explain(job)
    assert "node n1 on box has been away" in section(found, "now")
    assert "no manager has heard it for 12 s" in section(found, "now")
    assert "silent for 25s" in section(found, "next")
    assert "manager m1, which leads placement, closes it" in section(found, "next")
    assert "sweep" not in section(found, "next")


async def test_a_job_waits_for_nodes_that_are_away_or_drain() -> None:
    told = Told()
    await told.node("n1", "away", reason="its connection to the bus was closed")
    await told.node("n2", "draining")
    await told.node("n3", tasks=("bake",))
    job = await told.submit()
    found = await told.explain(job)
    waits = section(found, "waits for")
    assert waits == (
        "No active node offers send of queue mail. Nodes that do: n1 (away for 1m: its connection to the bus was "
        "closed), n2 (draining for 1m)."
    )
    assert "mainstay cluster nodes" in [advice.command for advice in found.advice]


async def test_a_job_that_an_active_node_offers_waits_for_no_node() -> None:
    told = Told()
    await told.node("n1", "away")
    await told.node("n2")
    job = await told.submit()
    assert "No active node" not in section(await told.explain(job), "waits for")


async def test_a_job_that_no_node_offers_says_what_the_nodes_serve() -> None:
    told = Told()
    await told.node("n1", tasks=("bake",))
    job = await told.submit()
    assert "No live worker of queue mail knows send (n1)." in section(await told.explain(job), "waits for")


async def test_a_loss_says_why_the_node_was_closed() -> None:
    told = Told()
    session = await told.node("n3")
    job = await told.submit()
    await told.claim(session)
    told.clock.advance(25)
    await told.store.close_session(session)
    await told.control.sweeper.sweep()
    for cause, words in (
        ("silence", "Node n3 was closed after 25s of silence, so its work was taken back."),
        ("proven", "Node n3 ended, as its parent process reported, so its work was taken back."),
        ("replaced", "Node n3 was started again, so its work was taken back."),
    ):
        told.know(closings=(NodeEvent(at_ms=told.clock.now_ms(), node="n3", cause=cause, seconds=25.2),))
        assert words in section(await told.explain(job), "history")
    told.know(closings=(NodeEvent(at_ms=told.clock.now_ms() - 3_600_000, node="n3", cause="silence"),))
    assert "silence" not in section(await told.explain(job), "history")


async def test_placed_work_waits_for_a_manager_that_leads_placement() -> None:
    told = Told()
    await FakeNode(told.store, "a").open(standing=True)
    job = await submit(told.store, NodePolicy(quorum_wait_s=60.0))
    told.know(placement="")
    assert "No manager leads placement now" in section(await told.explain(job), "waits for")
    told.know(placement="m1")
    assert "No manager leads placement now" not in section(await told.explain(job), "waits for")
