"""What the placement leader decides about a node job."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.control import retry_unit
from mainstay.lifecycle import Move
from mainstay.model import ErrorInfo, Session
from mainstay.node.decisions import AddLate, Ask, Assign, BeginLeaderPhase, End, Freeze, TakeBack, quorum_size
from mainstay.node.results import NodeJobResult
from mainstay.node.spec import LEADER, NodePolicy, OnNoQuorum
from tests.node.histories import START_MS, History, a_node

BOTH = NodePolicy()
LOCAL_ONLY = NodePolicy(has_leader=False)
THREE = [a_node("n1"), a_node("n2"), a_node("n3")]


def begun(policy: NodePolicy = BOTH, nodes: list[Session] | None = None) -> History:
    """A job whose units are assigned."""
    history = History(policy, THREE if nodes is None else nodes)
    history.settle()
    return history


def result_of(history: History) -> NodeJobResult:
    assert history.job.result is not None
    return msgspec.msgpack.decode(history.job.result, type=NodeJobResult)


def test_the_active_nodes_are_frozen_in_one_step_and_get_a_unit_each() -> None:
    history = History(BOTH, THREE)
    [freeze] = history.step()
    assert isinstance(freeze, Freeze)
    assert (history.job.status, history.job.token, history.job.session) == ("running", 1, None)
    assert sorted(unit.unit or "" for unit in history.units) == ["node/n1", "node/n2", "node/n3"]
    assert history.view.members == ("n1", "n2", "n3")


def test_every_unit_goes_to_the_session_of_its_node_under_a_new_token() -> None:
    history = begun()
    for name in ("n1", "n2", "n3"):
        unit = history.unit(name)
        assert (unit.status, unit.token, unit.session) == ("dispatched", 1, a_node(name).id)


def test_nodes_that_drain_lack_a_label_or_lack_the_job_are_not_members() -> None:
    policy = NodePolicy(labels={"disk": "ssd"})
    fits = a_node("fits", labels={"disk": "ssd", "zone": "a"})
    drains = a_node("drains", labels={"disk": "ssd"}).drained(START_MS, "me")
    lacks = a_node("lacks", labels={"disk": "ssd"}, tasks={})
    history = begun(policy, [fits, drains, lacks, a_node("other", labels={"disk": "hdd"})])
    assert history.view.members == ("fits",)


def test_a_job_without_any_node_waits() -> None:
    history = begun(nodes=[])
    assert history.job.status == "pending"


def test_a_job_whose_quorum_is_a_number_waits_for_that_number_of_nodes() -> None:
    history = begun(NodePolicy(quorum=4))
    assert history.job.status == "pending"
    history.join(a_node("n4"))
    history.settle()
    assert history.view.members == ("n1", "n2", "n3", "n4")


def test_a_job_with_a_delay_begins_when_it_is_due() -> None:
    history = History(BOTH, THREE)
    history.move(history.job, Move(to="scheduled", fields={"due_ms": START_MS + 5_000}))
    assert history.decide() == []
    history.wait(5)
    history.settle()
    assert history.job.status == "running"


def test_the_leader_phase_begins_with_the_quorum_at_the_leaders_own_session() -> None:
    history = begun()
    history.end("n2")
    history.settle()
    assert history.job.status == "running"
    history.end("n3")
    history.settle()
    assert history.job.status == "finalizing"
    leader = history.unit(LEADER)
    assert (leader.status, leader.session) == ("dispatched", a_node("n1").id)


def test_the_leader_phase_gets_the_results_of_the_nodes_that_had_ended() -> None:
    history = begun()
    history.end("n2")
    history.end("n3")
    [begin] = history.decide()
    assert isinstance(begin, BeginLeaderPhase)
    assert begin.ended == ("n2", "n3")


def test_the_job_ends_when_the_leader_phase_and_all_nodes_have_ended() -> None:
    history = begun()
    for name in ("n1", "n2"):
        history.end(name)
    history.settle()
    history.end(LEADER, result=msgspec.msgpack.encode("a summary"))
    history.settle()
    assert history.job.status == "finalizing"
    history.end("n3")
    history.settle()
    assert history.job.status == "succeeded"
    assert result_of(history) == NodeJobResult(
        value="a summary",
        members=("n1", "n2", "n3"),
        succeeded=("n1", "n2", "n3"),
        quorum_needed=2,
    )


def test_stragglers_are_cancelled_after_their_time() -> None:
    history = begun()
    for name in ("n1", "n2"):
        history.end(name)
    history.settle()
    history.end(LEADER)
    history.wait(59.999)
    history.settle()
    assert history.job.status == "finalizing"
    history.wait(0.001)
    history.settle()
    assert (history.job.status, history.unit("n3").status) == ("succeeded", "cancelled")
    assert result_of(history).cancelled == ("n3",)


def test_a_job_without_a_leader_phase_ends_with_its_nodes() -> None:
    history = begun(LOCAL_ONLY)
    for name in ("n1", "n2", "n3"):
        history.end(name)
    history.settle()
    assert (history.job.status, len(history.units)) == ("succeeded", 3)


def test_a_job_with_a_leader_phase_only_has_one_unit() -> None:
    history = begun(NodePolicy(has_local=False))
    assert [unit.unit for unit in history.units] == [LEADER]
    assert history.job.status == "finalizing"
    history.end(LEADER)
    history.settle()
    assert history.job.status == "succeeded"


def test_one_node_is_a_quorum_of_one() -> None:
    history = begun(nodes=[a_node("n1")])
    history.end("n1")
    history.settle()
    history.end(LEADER)
    history.settle()
    assert history.job.status == "succeeded"
    assert result_of(history).quorum_needed == 1


def test_a_quorum_that_is_impossible_fails_the_job_at_once_and_stops_the_rest() -> None:
    history = begun()
    history.end("n1", "failed")
    history.end("n2", "failed")
    history.settle()
    assert (history.job.status, history.unit("n3").status) == ("failed", "cancelled")
    assert history.job.error is not None
    assert history.job.error.code == "no_quorum"
    assert result_of(history).failed == ("n1", "n2")


def test_without_a_quorum_in_time_the_default_is_to_proceed_with_a_warning() -> None:
    history = begun()
    history.end("n1")  # the leader's own part
    history.wait(9.999)
    history.settle()
    assert history.job.status == "running"
    history.wait(0.001)
    history.settle()
    assert history.job.status == "finalizing"
    history.end(LEADER)
    history.wait(60)
    history.settle()
    assert history.job.status == "succeeded"
    result = result_of(history)
    assert not result.quorum_reached
    assert result.warnings == ("the quorum was not reached: 1 of 3 nodes succeeded, 2 are needed",)


def test_without_a_quorum_in_time_a_job_can_wait() -> None:
    history = begun(NodePolicy(on_no_quorum="wait"))
    history.end("n1")
    history.confirm("n2")
    history.confirm("n3")
    history.wait(3600)
    history.settle()
    assert history.job.status == "running"
    history.end("n2")
    history.settle()
    assert history.job.status == "finalizing"


def test_without_a_quorum_in_time_a_job_can_fail() -> None:
    history = begun(NodePolicy(on_no_quorum="fail"))
    history.end("n1")
    history.wait(10)
    history.settle()
    assert history.job.status == "failed"
    assert history.open_units == []


def test_the_wait_for_the_quorum_counts_from_the_first_end_if_the_leader_has_no_part() -> None:
    history = begun()
    history.join(a_node("n9"))
    history.leader = "n9"
    history.end("n2")
    history.wait(10)
    history.settle()
    assert history.job.status == "finalizing"


@pytest.mark.parametrize(("policy", "ends_as"), [("proceed", "succeeded"), ("fail", "failed"), ("wait", "running")])
def test_a_job_whose_members_never_come_back_follows_its_policy(policy: OnNoQuorum, ends_as: str) -> None:
    """Machines are replaced by others with new names before any of them has ended its part."""
    history = begun(NodePolicy(on_no_quorum=policy, has_leader=False))
    for name in ("n1", "n2", "n3"):
        history.give_back(name, lost=True)
        history.sessions.pop(a_node(name).id)
    history.join(a_node("n4"))
    history.leader = "n4"
    history.wait(69.9)
    assert history.decide() == []
    history.wait(60.1)
    history.settle()
    assert history.job.status == ends_as


def test_members_that_are_away_have_time_to_come_back_from_the_start_of_the_leader_on() -> None:
    history = begun(NodePolicy(on_no_quorum="fail"))
    for name in ("n1", "n2", "n3"):
        history.give_back(name, lost=True)
        history.sessions.pop(a_node(name).id)
    history.wait(3600)
    history.join(a_node("n4", started_ms=history.now_ms))
    history.leader = "n4"
    assert history.decide() == []


def test_a_leader_that_cannot_run_its_own_part_does_not_keep_the_quorum_waiting() -> None:
    history = begun(NodePolicy(on_no_quorum="fail"))
    history.give_back("n1", lost=True)
    history.join(a_node("n1", 1, started_ms=START_MS + 1, tasks={}))  # a program without the job
    history.end("n2")
    history.end("n3", "failed")
    history.wait(10)
    history.settle()
    assert history.job.status == "failed"


def test_all_nodes_can_be_required() -> None:
    history = begun(NodePolicy(require="all"))
    history.end("n1")
    history.end("n2")
    history.end("n3", "failed")
    history.settle()
    history.end(LEADER)
    history.settle()
    assert history.job.status == "failed"
    assert history.job.error is not None
    assert history.job.error.message == "not all nodes succeeded: n3"


def test_a_failed_leader_phase_fails_the_job() -> None:
    history = begun(nodes=[a_node("n1")])
    history.end("n1")
    history.settle()
    history.end(LEADER, "failed")
    history.settle()
    assert history.job.status == "failed"
    assert history.job.error is not None
    assert history.job.error.message == "its leader phase failed: it broke"


def test_a_long_error_of_the_leader_phase_is_cut_in_the_reason_of_the_job_and_not_in_its_error() -> None:
    history = begun()
    history.end("n1")
    history.end("n2")
    history.end("n3")
    history.settle()
    history.confirm(LEADER)
    long = ErrorInfo(type="Error", message="x" * 5_000)
    history.move(history.unit(LEADER), Move(to="failed", fields={"error": long}))
    history.settle()
    assert len(history.job.reason or "") == 200
    assert history.job.error is not None
    assert long.message in history.job.error.message


def test_a_node_that_joins_later_gets_no_unit() -> None:
    history = begun()
    history.join(a_node("n4"))
    assert history.decide() == []


def test_a_node_that_joins_later_gets_a_unit_if_the_job_asks_for_it_and_does_not_count() -> None:
    history = begun(NodePolicy(late_nodes=True))
    history.join(a_node("n4"))
    [late, *_] = history.step()
    assert isinstance(late, AddLate)
    history.settle()
    history.end("n4")
    history.end("n1")
    history.settle()
    assert history.job.status == "running"
    history.end("n2")
    history.end("n3")
    history.settle()
    history.end(LEADER)
    history.settle()
    result = result_of(history)
    assert (result.members, result.late, result.quorum_needed) == (("n1", "n2", "n3"), ("n4",), 2)


def test_a_cancelled_job_cancels_its_units_and_assigns_nothing() -> None:
    history = begun()
    history.give_back("n1")
    history.confirm("n2")
    history.move(history.job, Move(to="cancelling", reason="by request"))
    [end] = history.decide()
    assert isinstance(end, End)
    history.settle()
    assert history.job.status == "cancelled"
    assert {unit.status for unit in history.units} == {"cancelled"}


def test_units_of_a_settled_job_are_cancelled_and_never_assigned() -> None:
    history = begun()
    history.give_back("n1")
    history.move(history.job, Move(to="timed_out"))
    history.settle()
    assert history.open_units == []


def test_a_job_that_is_retried_gets_new_units_and_the_old_ones_are_cancelled() -> None:
    history = begun()
    history.move(history.job, Move(to="timed_out"), Move(to="pending"))
    history.settle()
    assert (history.job.status, history.job.token) == ("running", 2)
    assert sorted(unit.status for unit in history.units) == ["cancelled"] * 3 + ["dispatched"] * 3


def test_a_unit_is_asked_about_three_times_and_then_taken_back() -> None:
    history = begun(nodes=[a_node("n1")])
    asked: list[tuple[int, type]] = []
    for second in range(1, 21):
        history.wait(1)
        asked += [(second, type(action)) for action in history.step()]
    assert asked == [(5, Ask), (10, Ask), (15, Ask), (20, TakeBack)]
    assert (history.unit("n1").status, history.unit("n1").releases) == ("pending", 1)


def test_a_session_that_gave_a_unit_back_gets_it_again_after_thirty_seconds() -> None:
    history = begun(nodes=[a_node("n1")])
    history.give_back("n1")
    history.wait(29)
    assert history.decide() == []
    history.wait(1)
    assert isinstance(history.decide()[0], Assign)


def test_a_new_session_of_the_node_gets_the_unit_at_once() -> None:
    history = begun(nodes=[a_node("n1")])
    history.give_back("n1")
    history.wait(1)
    history.join(a_node("n1", 7, started_ms=history.now_ms))
    history.settle()
    assert history.unit("n1").session == a_node("n1", 7).id


def test_a_session_that_was_up_before_another_gave_the_unit_back_gets_it_at_once() -> None:
    history = begun(nodes=[a_node("n1")])
    history.wait(1)
    history.join(a_node("n1", 7, started_ms=history.now_ms))  # the successor in a rolling restart
    history.wait(1)
    history.give_back("n1")
    history.settle()
    assert history.unit("n1").session == a_node("n1", 7).id


def test_a_unit_that_was_given_back_once_and_then_failed_waits_for_its_backoff_only() -> None:
    history = begun(nodes=[a_node("n1")])
    history.wait(1)
    history.give_back("n1")
    history.wait(30)
    history.settle()
    history.confirm("n1")
    history.wait(1)
    again = Move(to="pending", fields={"due_ms": history.now_ms + 2_000})
    history.move(history.unit("n1"), Move(to="failed"), again)
    history.wait(2)
    assert isinstance(history.decide()[0], Assign)


def test_a_unit_whose_node_is_gone_waits_for_it() -> None:
    history = begun()
    history.give_back("n3", lost=True)
    history.sessions.pop(a_node("n3").id)
    assert history.decide() == []


@pytest.mark.parametrize(("lost", "times", "code"), [(False, 5, "not_placed"), (True, 3, "node_lost")])
def test_a_unit_that_comes_back_too_often_fails(*, lost: bool, times: int, code: str) -> None:
    history = begun()
    for _ in range(times):
        history.give_back("n3", lost=lost)
        history.wait(30)
        history.settle()
        if history.unit("n1").status == "dispatched":
            history.confirm("n1")
            history.confirm("n2")
    unit = history.unit("n3")
    assert unit.status == "failed"
    assert unit.error is not None
    assert unit.error.code == code
    assert f"{times} times" in unit.error.message


def test_the_leader_phase_goes_to_the_next_leader_when_it_comes_back() -> None:
    history = begun()
    history.end("n1")
    history.end("n2")
    history.settle()
    history.confirm(LEADER)
    history.give_back(LEADER, lost=True)
    history.sessions.pop(a_node("n1").id)
    history.leader = "n2"
    history.settle()
    leader = history.unit(LEADER)
    assert (leader.session, leader.token) == (a_node("n2").id, 2)


def test_a_leader_without_the_program_gives_the_leader_phase_to_a_node_that_has_it() -> None:
    history = History(NodePolicy(has_local=False), [a_node("n1", tasks={}), a_node("n2")], leader="n1")
    history.settle()
    assert history.unit(LEADER).session == a_node("n2").id


def test_the_size_of_a_quorum() -> None:
    assert [quorum_size("majority", n) for n in range(6)] == [0, 1, 2, 2, 3, 3]


def retried(history: History, *names: str) -> None:
    """Nodes of a failed job are retried, as the service does it."""
    for name in names:
        unit = history.unit(name)
        history.move(unit, *retry_unit(unit, "by request", now_ms=history.now_ms))
    again = Move(to="running", fields={"started_ms": history.now_ms, "session": None})
    history.move(history.job, Move(to="pending"), again)


def test_retried_nodes_are_followed_by_another_leader_phase_with_all_results() -> None:
    history = begun(NodePolicy(require="all"))
    history.end("n1")
    history.end("n2")
    history.end("n3", "failed")
    history.settle()
    history.end(LEADER)
    history.settle()
    assert history.job.status == "failed"
    history.wait(3600)
    retried(history, "n3")
    history.settle()
    assert (history.job.status, history.job.token) == ("running", 1)
    history.end("n3")
    [begin] = history.step()
    assert isinstance(begin, BeginLeaderPhase)
    assert (begin.round, begin.ended) == (2, ("n1", "n2", "n3"))
    history.settle()
    history.end(LEADER)
    history.settle()
    assert history.job.status == "succeeded"


def test_retried_nodes_have_the_time_of_stragglers_from_the_retry_on() -> None:
    history = begun(NodePolicy(has_leader=False, require="all"))
    history.end("n1")
    history.end("n2")
    history.end("n3", "failed")
    history.settle()
    assert history.job.status == "failed"
    history.wait(3600)
    retried(history, "n3")
    history.settle()
    history.confirm("n3")
    history.wait(59)
    history.settle()
    assert history.job.status == "running"
    history.wait(1)
    history.settle()
    assert (history.job.status, history.unit("n3").status) == ("failed", "cancelled")


def test_a_unit_whose_budget_is_spent_is_assigned_once_more_after_a_retry() -> None:
    history = begun(nodes=[a_node("n1")])
    for number in range(3):
        history.give_back("n1", lost=True)
        history.wait(1)
        history.join(a_node("n1", number + 2, started_ms=history.now_ms))
        history.settle()
    assert (history.job.status, history.unit("n1").status) == ("failed", "failed")
    retried(history, "n1")
    history.settle()
    assert history.unit("n1").status == "dispatched"
    history.give_back("n1", lost=True)
    history.settle()
    assert history.unit("n1").status == "failed"
