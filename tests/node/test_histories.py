"""Any history of a node job: it settles once, and a leader never breaks its rules on the way."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from mainstay.lifecycle import Move
from mainstay.node.decisions import BeginLeaderPhase, CancelUnits, End, Freeze, is_settled
from mainstay.node.spec import LEADER, NodePolicy, node_of
from tests.node.histories import History, a_node

NODES = ("n1", "n2", "n3", "n4")

policies = st.builds(
    NodePolicy,
    has_local=st.just(True),
    has_leader=st.booleans(),
    quorum=st.sampled_from(["majority", "all", 1, 2]),
    on_no_quorum=st.sampled_from(["proceed", "wait", "fail"]),
    require=st.sampled_from(["quorum", "all"]),
    late_nodes=st.booleans(),
) | st.just(NodePolicy(has_local=False))

happenings = st.lists(
    st.tuples(
        st.sampled_from(
            ["confirm", "succeed", "fail", "give_back", "lose", "join", "leave", "lead", "cancel", "time_out", "retry"]
        ),
        st.sampled_from((*NODES, LEADER)),
        st.sampled_from([0.0, 0.5, 5.0, 10.0, 20.0, 30.0, 60.0]),
    ),
    max_size=60,
)


def happen(history: History, what: str, where: str) -> None:
    """One event of the world, if it is possible now."""
    job = history.job
    if what == "join" and where != LEADER:
        history.join(a_node(where, len(history.events), started_ms=history.now_ms))
    elif what == "leave":
        for session in [each for each in history.sessions.values() if each.node == where]:
            del history.sessions[session.id]
    elif what == "lead":
        history.leader = where
    elif what in ("cancel", "time_out"):
        if job.status in ("running", "finalizing"):
            history.move(job, Move(to="cancelling" if what == "cancel" else "timed_out", reason="by a test"))
    elif what == "retry":
        if job.status in ("failed", "timed_out"):
            history.move(job, Move(to="pending"))
    else:
        happen_to_unit(history, what, where)


def happen_to_unit(history: History, what: str, where: str) -> None:
    view = history.view
    unit = view.leader if where == LEADER else view.units.get(where)
    if unit is None or unit.session is None:
        return
    if what == "confirm" and unit.status == "dispatched":
        history.confirm(where)
    elif what == "succeed":
        history.end(where)
    elif what == "fail":
        history.end(where, "failed")
    elif what in ("give_back", "lose"):
        history.give_back(where, lost=what == "lose")


def check(history: History) -> None:
    """What holds after every step of a leader."""
    job, view = history.job, history.view
    units = [unit.unit for unit in history.units if unit not in view.earlier]
    assert len(units) == len(set(units)), "a node has two units"
    if job.status == "running":
        assert view.leader is None
    if is_settled(job):
        assert view.open == (), "a settled job has open units"
    assert all(is_settled(unit) for unit in view.earlier)
    for unit in history.units:
        if unit.session is not None and (node := node_of(unit.unit or "")):
            assert unit.session.partition(".")[0] == node


@settings(max_examples=300, deadline=None)
@given(policy=policies, nodes=st.sets(st.sampled_from(NODES)), story=happenings)
def test_a_leader_keeps_its_rules_in_every_history(
    policy: NodePolicy, nodes: set[str], story: list[tuple[str, str, float]]
) -> None:
    history = History(policy, [a_node(name) for name in sorted(nodes)])
    for what, where, seconds in story:
        happen(history, what, where)
        history.wait(seconds)
        history.settle()
        check(history)
    starts = sum(1 for action in history.actions if isinstance(action, Freeze))
    begins = sum(1 for action in history.actions if isinstance(action, BeginLeaderPhase))
    ends = sum(1 for action in history.actions if isinstance(action, End))
    assert starts == history.job.token
    assert begins <= starts
    assert ends <= starts


@settings(max_examples=200, deadline=None)
@given(policy=policies, nodes=st.sets(st.sampled_from(NODES), min_size=2), story=happenings)
def test_every_job_settles_when_its_nodes_are_back_and_work(
    policy: NodePolicy, nodes: set[str], story: list[tuple[str, str, float]]
) -> None:
    history = History(policy, [a_node(name) for name in sorted(nodes)])
    for what, where, seconds in story:
        happen(history, what, where)
        history.wait(seconds)
        history.settle()
    for name in NODES:
        history.join(a_node(name, 1_000_000, started_ms=history.now_ms))
    history.leader = "n1"
    for _ in range(40):
        for unit in history.open_units:
            if unit.session is not None:
                history.end(node_of(unit.unit or "") or LEADER)
        history.wait(10)
        history.settle()
        if is_settled(history.job):
            break
    assert is_settled(history.job)
    settled = history.job
    history.wait(3600)
    assert [action for action in history.decide() if not isinstance(action, CancelUnits)] == []
    assert history.job == settled
