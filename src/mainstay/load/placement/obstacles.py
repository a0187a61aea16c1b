"""Why a run on nodes, or a slice of it, waits: each obstacle in a sentence, with what to do about it. Pure, except for
`obstacles`, which reads the rows."""

from __future__ import annotations

from ...control import MOST_REFUSALS, is_present, refusals
from ...control.explain import Advice, Obstacle
from ...model import LEAD_QUEUE, Job
from ...stores import JobStore
from ...words import counted, moment, span
from ..kind import SLICE
from .core_pools import matching_nodes
from .decisions import PlacedRun, PlacedSlice, is_out
from .snapshot import PlacementSnapshot, read_snapshot
from .words import long_wait

#: slices and nodes that are named; the rest is counted
_NAMED = 5
_NODES = Advice(why="see the nodes and their cores", command="mainstay cluster nodes")
_JOIN = "mainstay node join URL"


async def obstacles(store: JobStore, row: Job) -> list[Obstacle] | None:
    """What a run on nodes or one of its slices waits for. None: workers claim this job."""
    if row.parent is None:
        return run_obstacles(await read_snapshot(store), row) if row.queue == LEAD_QUEUE else None
    if row.name != SLICE:
        return None
    snapshot = await read_snapshot(store)
    run = snapshot.runs.get(row.parent)
    each = None if run is None else next((each for each in run.open if each.row.id == row.id), None)
    if run is None or each is None:
        return [Obstacle(text="Its job has ended, so the placement leader cancels it.", stops=False)]
    return slice_obstacles(snapshot, run, each)


def run_obstacles(snapshot: PlacementSnapshot, job: Job) -> list[Obstacle]:
    """What an unsettled run waits for."""
    run = snapshot.runs.get(job.id)
    if job.awaits or (job.due_ms > snapshot.now_ms and not job.awaits_cores):
        return []
    if job.awaits_cores:
        return [*_cores(snapshot, run), *_no_placement(snapshot)]
    found = [] if job.session is not None else _no_manager(snapshot)
    return found if run is None else [*found, *_open_slices(snapshot, run)]


def _cores(snapshot: PlacementSnapshot, run: PlacedRun | None) -> list[Obstacle]:
    """What a run without cores waits for, and until when."""
    if run is None or run.wants is None:
        return [Obstacle(text="Its payload cannot be read here, so what it waits for is not known.", stops=False)]
    wait = snapshot.wait_of(run.job.id)
    if wait is None:
        return [Obstacle(text="It gets its cores now.", stops=False)]
    labels = "".join(f" --label {name}={value}" for name, value in sorted(run.wants.demand.labels.items()))
    advice = [_NODES]
    if wait.cause in ("no_node", "too_large"):
        advice.insert(0, Advice(why="start a node", command=f"{_JOIN}{labels}"))
    elif wait.jobs:
        advice.insert(0, Advice(why="see the run in front", command=f"mainstay jobs explain {wait.jobs[0]}"))
    found = [Obstacle(text=long_wait(wait), advice=tuple(advice), stops=wait.cause in ("no_node", "too_large"))]
    if (ends_ms := run.job.expires_ms) is not None:
        left = span(max(0, ends_ms - snapshot.now_ms))
        text = f"If it has no cores by {moment(ends_ms)}, in {left}, it ends."
        found.append(Obstacle(text=text, stops=False))
    return found


def _no_placement(snapshot: PlacementSnapshot) -> list[Obstacle]:
    if snapshot.is_led:
        return []
    text = "No manager leads placement now, so no cores are given away. Another manager takes over within seconds."
    return [Obstacle(text=text, advice=(Advice(why="see the leaders", command="mainstay cluster leaders"),))]


def _no_manager(snapshot: PlacementSnapshot) -> list[Obstacle]:
    """A run is led by a manager that claims it."""
    if any(session.serves(LEAD_QUEUE) and not session.dead for session in snapshot.sessions):
        return []
    text = "Only managers lead load tests on nodes, and no manager is active on this store."
    return [Obstacle(text=text, advice=(Advice(why="see the managers", command="mainstay cluster status"),))]


def _open_slices(snapshot: PlacementSnapshot, run: PlacedRun) -> list[Obstacle]:
    """The slices that are not at work: the first ones by name, the others by number."""
    found: list[Obstacle] = []
    for each in run.open:
        found += slice_obstacles(snapshot, run, each)[:1]
    more = len(found) - _NAMED
    if more <= 0:
        return found
    return [*found[:_NAMED], Obstacle(text=f"{counted(more, 'more slice waits', 'more slices wait')}.", stops=False)]


def slice_obstacles(snapshot: PlacementSnapshot, run: PlacedRun, each: PlacedSlice) -> list[Obstacle]:
    """What a slice waits for; empty: it is at work."""
    row, what = each.row, f"Slice {each.call.number}"
    if row.session is not None:
        return _held(snapshot, each, what)
    if not run.is_active:
        return [Obstacle(text=f"{what} is not placed while its job is {run.job.status}.", stops=False)]
    if row.due_ms > snapshot.now_ms:
        text = f"{what} waits for its retry, until {moment(row.due_ms)}, in {span(row.due_ms - snapshot.now_ms)}."
        return [Obstacle(text=text, stops=False)]
    nodes = ", ".join(_nodes_of(snapshot, run, each)) or "no active node has its labels"
    text = f"{what} waits for {counted(each.call.cores, 'free core')} on one node: {nodes}."
    if n := refusals(row):
        text += f" Nodes gave it back, or did not confirm it, {counted(n, 'time')} (limit {MOST_REFUSALS})."
    return [Obstacle(text=text, advice=(_NODES,)), *_no_placement(snapshot)]


def _held(snapshot: PlacementSnapshot, each: PlacedSlice, what: str) -> list[Obstacle]:
    row, lease_ms = each.row, snapshot.lease_ms
    session = next((session for session in snapshot.sessions if session.id == row.session), None)
    if session is None or not is_present(session, lease_ms):
        node = "its node" if session is None else f"node {session.node}"
        text = f"{what}: {node} is not heard. If it stays away, the slice goes to another node."
        return [Obstacle(text=text, advice=(_NODES,), stops=False)]
    if row.status != "dispatched":
        return []
    waited = span(snapshot.now_ms - (row.claimed_ms or row.changed_ms))
    text = f"{what}: node {session.node} has not confirmed it for {waited}."
    if row.expires_ms is not None:
        text += f" It is asked again every 5s, and the slice is taken back at {moment(row.expires_ms)}."
    return [Obstacle(text=text, stops=False)]


def _nodes_of(snapshot: PlacementSnapshot, run: PlacedRun, each: PlacedSlice) -> list[str]:
    """Why each node that the slice may use does not get it."""
    free = snapshot.free_cores()
    pool = matching_nodes(snapshot.pool.core_nodes, each.call.labels)
    # a slice that was placed before may go beside another one of its run
    siblings = set() if each.row.token else {snapshot.pool.names.get(other.row.session or "", "") for other in run.open}
    able = [node.name for node in pool if node.cores >= each.call.cores and node.name not in siblings]
    found = []
    for node in pool:
        if node.name in siblings:
            why = "runs another slice of it"
        elif node.cores < each.call.cores:
            why = f"has {counted(node.cores, 'core')}"
        elif is_out(each, snapshot.pool.nodes[node.name], able, snapshot.now_ms):
            past = next(past for past in reversed(each.past) if past.node == node.name)
            why = "lost it" if past.end == "lost" else "gave it back"
        else:
            why = f"has {free[node.name]} free"
        found.append(f"{node.name} {why}")
    more = [f"{len(found) - _NAMED} more"] if len(found) > _NAMED else []
    return [*found[:_NAMED], *more]


__all__ = ["obstacles", "run_obstacles", "slice_obstacles"]
