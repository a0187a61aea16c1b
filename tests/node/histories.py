"""A node job whose nodes and clock do what a test says: the decisions of its leader, applied to rows in memory."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

from mainstay.control import JobFactory, OptionReader, given_back_by, may_be_given_back, open_nodes
from mainstay.lifecycle import Chain, Event, Move, apply, submit
from mainstay.model import BLANK, PLACE_QUEUE, ErrorInfo, Job, Offer, Session, Settings
from mainstay.node.changes import changes_of
from mainstay.node.decisions import Action, Assign, BeginLeaderPhase, Cluster, NodeJobView, decide, is_settled
from mainstay.node.spec import KIND, LEADER, NodePolicy, NodeSpec, node_of

JOB_ID = "018bcfe5-6800-7000-8000-000000000001"
START_MS = 1_700_000_000_000
TASKS: Mapping[str, Mapping[str, object]] = {"node:compact:local": {}, "node:compact:leader": {}}


def a_node(
    name: str,
    number: int = 0,
    *,
    labels: Mapping[str, str] | None = None,
    started_ms: int = START_MS,
    tasks: Mapping[str, Mapping[str, object]] = TASKS,
) -> Session:
    """The session of a node."""
    return Session(
        id=f"{name}.{number:032x}",
        node=name,
        labels=labels or {},
        standing=True,
        started_ms=started_ms,
        offer=Offer(tasks=tasks),
    )


def a_spec(policy: NodePolicy) -> NodeSpec:
    plan = OptionReader(Settings()).read({"retries": 1, "jitter": False})
    return NodeSpec(policy=policy, plan=plan, arguments=msgspec.Raw(b"\x80"))


class History:
    """One job, its units, and all that happens to them."""

    def __init__(self, policy: NodePolicy, nodes: list[Session], *, leader: str = "") -> None:
        self.now_ms = START_MS
        self.spec = a_spec(policy)
        self.sessions = {session.id: session for session in nodes}
        self.leader = leader or (nodes[0].node if nodes else "")
        self.rows: dict[str, Job] = {}
        self.events: list[Event] = []
        self.actions: list[Action] = []
        self._chain = Chain()
        self._factory = JobFactory(Settings(), random.Random(1), "test")
        blank = msgspec.structs.replace(
            BLANK,
            id=JOB_ID,
            kind=KIND,
            name="compact",
            queue=PLACE_QUEUE,
            due_ms=self.now_ms,
            payload=msgspec.msgpack.encode(self.spec),
        )
        new = submit(blank, now_ms=self.now_ms, actor="test", chain=self._chain)
        self.rows[JOB_ID] = new.job

    @property
    def job(self) -> Job:
        return self.rows[JOB_ID]

    @property
    def units(self) -> list[Job]:
        return [row for row in self.rows.values() if row.parent is not None]

    @property
    def view(self) -> NodeJobView:
        given_back = {
            unit.id: given_back_by([event for event in self.events if event.job_id == unit.id])
            for unit in self.units
            if may_be_given_back(unit)
        }
        return NodeJobView(self.job, self.spec.policy, self.units, given_back=given_back)

    def unit(self, name: str) -> Job:
        """The current unit of a node, or of the leader phase."""
        view = self.view
        if name != LEADER:
            return view.units[name]
        assert view.leader is not None
        return view.leader

    @property
    def cluster(self) -> Cluster:
        nodes = open_nodes(self.sessions.values(), lease_ms=0)
        return Cluster(nodes=nodes, own=nodes.get(self.leader))

    def decide(self) -> list[Action]:
        return decide(self.view, self.cluster, self.now_ms)

    def step(self) -> list[Action]:
        """The leader decides once and writes all of it."""
        decided = self.decide()
        for action in decided:
            self.check(action)
            for change in changes_of(action, self.view, self.spec, epoch=1, now_ms=self.now_ms):
                self.move(change.row, *change.moves)
                for new, _ in self._factory.make(change.units, now_ms=self.now_ms, chain=self._chain):
                    assert new.job.id not in self.rows, "a unit was created twice"
                    self.rows[new.job.id] = new.job
        self.actions += decided
        return decided

    def settle(self) -> None:
        """Let the leader decide until it has nothing to do."""
        for _ in range(20):
            if not self.step():
                return
        raise AssertionError("the leader does not come to rest")

    def check(self, action: Action) -> None:
        """What must hold for every action of a leader."""
        if isinstance(action, Assign):
            assert self.job.status in ("running", "finalizing"), "assigned for a job that does not run"
            for each in action.assignments:
                node = node_of(each.unit.unit or "")
                assert node in ("", each.session.node), "assigned to another node"
                assert each.session.id in self.sessions
                assert not each.session.is_draining
        if isinstance(action, BeginLeaderPhase):
            assert self.job.status == "running"
            assert self.view.leader is None

    def move(self, row: Job, *moves: Move, actor: str = "test") -> None:
        current = self.rows[row.id]
        assert current.version == row.version, "decided on a row that has changed"
        moved = apply(current, *moves, now_ms=self.now_ms, actor=actor, chain=self._chain)
        self.rows[row.id] = moved.job
        self.events += moved.events

    # what nodes do ------------------------------------------------------------------------------------

    def confirm(self, name: str) -> None:
        unit = self.unit(name)
        self.move(unit, Move(to="running", fields={"started_ms": self.now_ms, "starts": unit.starts + 1}))

    def end(self, name: str, to: str = "succeeded", result: bytes | None = b"\x01") -> None:
        """A node ends its unit, which it confirms first if it has not."""
        if self.unit(name).status == "dispatched":
            self.confirm(name)
        error = None if to == "succeeded" else ErrorInfo(type="Error", message="it broke")
        fields = {"result": result, "error": None} if to == "succeeded" else {"error": error}
        self.move(self.unit(name), Move(to=to, fields=fields))

    def give_back(self, name: str, *, lost: bool = False) -> None:
        unit = self.unit(name)
        counts = {"releases": unit.releases + 1, "losses": unit.losses + int(lost)}
        self.move(unit, Move(to="pending", reason="given back", fields=counts))

    def join(self, session: Session) -> None:
        self.sessions[session.id] = session

    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    @property
    def open_units(self) -> list[Job]:
        return [unit for unit in self.units if not is_settled(unit)]
