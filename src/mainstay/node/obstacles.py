"""Why a node job, or one of its units, waits: each obstacle in a sentence, with what to do about it. Pure, except for
`obstacles`, which reads the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..control import MOST_REFUSALS, OUT_MS, is_present, may_assign, refusals
from ..control.explain import Advice, Obstacle
from ..model import Job, Session
from ..stores import JobStore
from ..words import counted, moment, span
from .decisions import is_settled, matching, quorum_limit_ms
from .snapshot import NodeJobSnapshot, read_snapshot
from .spec import LEADER, LOCAL, is_leader_unit, node_of, row_name

#: nodes that are named; the rest is counted
_NAMED = 5


async def obstacles(store: JobStore, row: Job) -> list[Obstacle]:
    """What a node job or one of its units waits for."""
    if row.parent is None:
        snapshot = await read_snapshot(store, row)
        return [*job_obstacles(snapshot), *open_nodes_of(snapshot)]
    [job] = await store.get([row.parent])
    if job is None:
        return [Obstacle(text="Its job no longer exists, so it is not placed.")]
    snapshot = await read_snapshot(store, job)
    return unit_obstacles(snapshot, row)


def job_obstacles(snapshot: NodeJobSnapshot) -> list[Obstacle]:
    """What an unsettled job waits for, the hardest first; without the obstacles of its nodes."""
    job, rows = snapshot.job, snapshot.rows
    if is_settled(job) or job.awaits or job.due_ms > snapshot.now_ms:
        return []
    if snapshot.policy is None:
        return [Obstacle(text="Its payload cannot be read here, so what it waits for is not known.", stops=False)]
    found = _no_leader(snapshot)
    if job.status in ("pending", "scheduled"):
        return [*_start(snapshot), *found]
    if job.status == "running":
        found += _quorum(snapshot)
    if job.status == "cancelling":
        found.append(Obstacle(text="The placement leader cancels its open units, then the job.", stops=False))
    if job.status == "finalizing" and rows.leader is not None and is_settled(rows.leader):
        found.append(_stragglers("Its leader phase has ended.", rows.leader.created_ms, snapshot))
    elif job.status == "finalizing" and rows.leader is not None:
        text = f"It waits for its leader phase, which is {_in_words(rows.leader.status)}."
        found.append(Obstacle(text=text, advice=(_explain(rows.leader),), stops=False))
    return found


def _no_leader(snapshot: NodeJobSnapshot) -> list[Obstacle]:
    if snapshot.leader is not None:
        return []
    if not snapshot.present:
        return [_no_node()]
    text = "No node leads the placement of work now. Another one takes over within seconds."
    return [Obstacle(text=text, advice=(_nodes("see the nodes"),))]


def _no_node() -> Obstacle:
    start = Advice(why="start a node", command="mainstay worker MODULE:APP --node NAME")
    return Obstacle(text="No node is active on this store.", advice=(start,))


def _start(snapshot: NodeJobSnapshot) -> list[Obstacle]:
    """Why the members of a job are not frozen yet."""
    policy, nodes, name = snapshot.rows.policy, snapshot.cluster.nodes, snapshot.job.name
    if not nodes:
        return [] if not snapshot.present else [_all_drain(snapshot)]
    if not policy.has_local:
        if any(_has(node, name, LEADER) for node in nodes.values()):
            return []
        return [_no_program(name, nodes.values())]
    fitting = matching(nodes.values(), policy.labels)
    if not fitting:
        start = Advice(why="start a node with these labels", command=_start_command(policy.labels))
        text = f"No active node has {_labels(policy.labels)}. Active nodes: {_listed(nodes)}."
        return [Obstacle(text=text, advice=(start, _nodes("see the labels of the nodes")))]
    able = [node for node in fitting if _has(node, name, LOCAL)]
    if not able:
        return [_no_program(name, fitting)]
    if isinstance(policy.quorum, int) and len(able) < policy.quorum:
        has = "has" if len(able) == 1 else "have"
        text = (
            f"Its quorum is {counted(policy.quorum, 'node')}, and {counted(len(able), 'active node')} {has} the job: "
            f"{_listed(node.node for node in able)}."
        )
        return [Obstacle(text=text, advice=(_nodes("see the nodes"),))]
    return []


def _all_drain(snapshot: NodeJobSnapshot) -> Obstacle:
    names = _listed(sorted({session.node for session in snapshot.present.values()}))
    text = f"Every node drains and gets no more work: {names}."
    start = Advice(why="start a node", command="mainstay worker MODULE:APP --node NAME")
    return Obstacle(text=text, advice=(start,))


def _no_program(name: str, nodes: Iterable[Session]) -> Obstacle:
    text = f"No active node has the job {name} in its program: {_listed(node.node for node in nodes)}."
    start = Advice(why=f"start a node whose program has {name}", command="mainstay worker MODULE:APP --node NAME")
    return Obstacle(text=text, advice=(start,))


def _quorum(snapshot: NodeJobSnapshot) -> list[Obstacle]:
    rows = snapshot.rows
    if rows.quorum_ms is not None:
        reached = f"The quorum is reached: {_reached(snapshot)}."
        if rows.policy.has_leader:
            return [Obstacle(text=f"{reached} The leader phase begins now.", stops=False)]
        return [_stragglers(reached, rows.quorum_ms, snapshot)]
    text = f"It waits for its quorum: {_reached(snapshot)}, {rows.needed} are needed."
    limit_ms = quorum_limit_ms(rows, snapshot.cluster)
    if rows.policy.on_no_quorum == "wait":
        text += " It waits without a limit."
    elif limit_ms is not None and limit_ms > snapshot.now_ms:
        then = "the leader phase begins without it" if rows.policy.has_leader else "the job ends without it"
        then = "the job fails" if rows.policy.on_no_quorum == "fail" else then
        text += f" If it is not reached in {span(limit_ms - snapshot.now_ms)}, {then}."
    return [Obstacle(text=text, stops=False)]


def _stragglers(reached: str, since_ms: int, snapshot: NodeJobSnapshot) -> Obstacle:
    left_ms = since_ms + round(snapshot.rows.policy.stragglers_s * 1000) - snapshot.now_ms
    text = f"{reached} The other nodes have {span(left_ms)} more, then their units are cancelled."
    return Obstacle(text=text, stops=False)


def _reached(snapshot: NodeJobSnapshot) -> str:
    rows = snapshot.rows
    return f"{rows.reached} of {counted(len(rows.members), 'member')} succeeded"


def open_nodes_of(snapshot: NodeJobSnapshot) -> list[Obstacle]:
    """The nodes that have not ended: those that need attention by name, the others by number."""
    if is_settled(snapshot.job):
        return []
    at_work = 0
    found: list[Obstacle] = []
    for unit in snapshot.rows.units.values():
        if is_settled(unit):
            continue
        own = unit_obstacles(snapshot, unit)
        if own:
            found += own[:1]
        else:
            at_work += 1
    more = len(found) - _NAMED
    found = found[:_NAMED]
    if more > 0:
        look = Advice(why="see all nodes of the job", command=f"mainstay node show {snapshot.job.id}")
        found.append(Obstacle(text=f"{counted(more, 'more node waits', 'more nodes wait')}.", advice=(look,)))
    if at_work:
        found.append(Obstacle(text=f"{counted(at_work, 'node is', 'nodes are')} at work.", stops=False))
    return found


# units ----------------------------------------------------------------------------------------------


def unit_obstacles(snapshot: NodeJobSnapshot, unit: Job) -> list[Obstacle]:
    """What a unit waits for; empty: it runs, or has ended."""
    if is_settled(unit):
        return []
    if is_settled(snapshot.job):
        return [Obstacle(text=f"Its job is {snapshot.job.status}: the placement leader cancels it.", stops=False)]
    what = "The leader phase" if is_leader_unit(unit.unit) else f"Node {node_of(unit.unit or '')}"
    if unit.session is not None:
        return _held(snapshot, unit, what)
    if unit.due_ms > snapshot.now_ms:
        text = f"{what} waits for its retry, until {moment(unit.due_ms)}, in {span(unit.due_ms - snapshot.now_ms)}."
        return [Obstacle(text=text, stops=False)]
    return [*_no_session(snapshot, unit, what), *_no_leader(snapshot)]


def _held(snapshot: NodeJobSnapshot, unit: Job, what: str) -> list[Obstacle]:
    if unit.session not in snapshot.present:
        text = f"{what}: the session that holds its unit is gone. The unit is taken back, and goes to its next session."
        return [Obstacle(text=text, advice=(_nodes("see which nodes are active"),))]
    if unit.status != "dispatched":
        return []
    node, held = snapshot.present[unit.session].node, "the leader phase" if is_leader_unit(unit.unit) else "its unit"
    waited = span(snapshot.now_ms - (unit.claimed_ms or unit.changed_ms))
    text = f"Node {node} has not confirmed {held} for {waited}."
    if unit.expires_ms is not None:
        text += f" It is asked again every 5s, and the unit is taken back at {moment(unit.expires_ms)}."
    return [Obstacle(text=text, stops=False)]


def _no_session(snapshot: NodeJobSnapshot, unit: Job, what: str) -> list[Obstacle]:
    """Why a pending unit is not assigned."""
    if is_leader_unit(unit.unit):
        own = snapshot.cluster.own or next(iter(snapshot.cluster.nodes.values()), None)
        return [] if own is not None else [_no_node()] if not snapshot.present else [_all_drain(snapshot)]
    node = node_of(unit.unit or "")
    start = Advice(why=f"start node {node} again", command=f"mainstay worker MODULE:APP --node {node}")
    session = snapshot.session_of(node)
    if session is None or not is_present(session, snapshot.lease_ms):
        lost = f" It was lost with its session {counted(unit.losses, 'time')}." if unit.losses else ""
        return [Obstacle(text=f"{what} is away: none of its sessions is open.{lost}", advice=(start,))]
    if session.is_draining:
        return [Obstacle(text=f"{what} drains and gets no more work until it is started again.", advice=(start,))]
    if not _has(session, snapshot.job.name, LOCAL):
        return [_no_program(snapshot.job.name, [session])]
    back_by = snapshot.rows.given_back.get(unit.id, "")
    if not may_assign(unit, session, now_ms=snapshot.now_ms, given_back_by=back_by) and refusals(unit):
        again_ms = unit.changed_ms + OUT_MS
        text = (
            f"{what} gave its unit back, or did not confirm it, {counted(refusals(unit), 'time')} (limit "
            f"{MOST_REFUSALS}). It is asked again in {span(again_ms - snapshot.now_ms)}."
        )
        return [Obstacle(text=text, stops=False)]
    return []


def _has(session: Session, name: str, phase: str) -> bool:
    """Whether the program of a session has a phase of a job; one without an offer may have it."""
    return session.knows("node", row_name(name, phase)) is not False


def _nodes(why: str) -> Advice:
    return Advice(why=why, command="mainstay node list")


def _explain(unit: Job) -> Advice:
    return Advice(why="see what it waits for", command=f"mainstay jobs explain {unit.id}")


def _start_command(labels: Mapping[str, str]) -> str:
    options = "".join(f" --label {name}={value}" for name, value in sorted(labels.items()))
    return f"mainstay worker MODULE:APP --node NAME{options}"


def _labels(labels: Mapping[str, str]) -> str:
    named = ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return f"the {'label' if len(labels) == 1 else 'labels'} {named}"


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more


def _in_words(status: str) -> str:
    return {"pending": "waiting", "dispatched": "assigned and not confirmed yet"}.get(status, status)


__all__ = ["job_obstacles", "obstacles", "unit_obstacles"]
