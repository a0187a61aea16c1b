"""What the placement leader does next about runs, from rows and sessions alone."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstay.control import Ask, Assign, CancelUnits, FailUnit, PastAssignment, TakeBack
from mainstay.load.kind import KIND, SLICE
from mainstay.load.placement import (
    CoreDemand,
    CoreNode,
    NodePool,
    PlacedRun,
    PlacedSlice,
    RunDemand,
    SliceCall,
    decide,
    node_pool,
)
from mainstay.load.placement.decisions import NoteWait, Place, PlaceAgain, RunAction
from mainstay.model import LEAD_QUEUE, PLACE_MS, Job, Offer, Session, route_of
from mainstay.testing import a_job

NOW = 1_700_000_000_000
OFFER = Offer(tasks={route_of(KIND.name, SLICE): {}}, cores=8)


def a_session(node: str, number: int = 1, **fields: Any) -> Session:
    given = {"started_ms": NOW - 60_000, "beat_ms": NOW, "offer": OFFER, **fields}
    return Session(id=f"{node}.{number:032x}", node=node, **given)


def pool(*sessions: Session) -> NodePool:
    return node_pool(sessions, lease_ms=NOW)


def a_run(*slices: PlacedSlice, wants: RunDemand | None = None, **fields: Any) -> PlacedRun:
    """A run that waits for cores; with slices, one that a manager leads."""
    given = {"status": "pending", "due_ms": PLACE_MS} if not slices else {"status": "running", "session": "m.1"}
    given = {"kind": KIND.name, "queue": LEAD_QUEUE, "token": 1, "changed_ms": NOW - 60_000, **given, **fields}
    job = a_job(str(given.pop("status")), **given)
    return PlacedRun(job, wants or RunDemand(demand=CoreDemand(most=8)), slices)


def a_slice(number: int = 0, status: str = "pending", *, cores: int = 4, round: int = 1, **fields: Any) -> PlacedSlice:  # noqa: A002
    past = fields.pop("past", ())
    labels, node = fields.pop("labels", {}), fields.pop("node", "")
    unit = f"slice/{round}/{number}"
    row = a_job(
        status,
        id=f"018bcfe5-6800-7000-8000-00000{round:03}{number:04}",
        parent="p",
        unit=unit,
        kind=KIND.name,
        name=SLICE,
        **fields,
    )
    call = SliceCall(job="p", round=round, number=number, of=2, cores=cores, labels=labels, node=node)
    return PlacedSlice(row, call, past)


def busy(node: str) -> PlacedRun:
    """Another run, which holds all cores of a node."""
    at_work = a_slice(7, "running", token=1, cores=OFFER.cores, session=a_session(node).id)
    return a_run(at_work, id="018bcfe5-6800-7000-8000-00000000000b")


def lost(node: str, ago_s: float = 1) -> PastAssignment:
    return PastAssignment(session=f"{node}.old", node=node, at_ms=NOW - round(ago_s * 1000), end="lost")


def refused(node: str, ago_s: float = 1) -> PastAssignment:
    return msgspec.structs.replace(lost(node, ago_s), end="given_back")


def actions(run: PlacedRun, *sessions: Session, others: tuple[PlacedRun, ...] = ()) -> list[RunAction]:
    return [action for each, action in decide([run, *others], pool(*sessions), NOW).actions if each is run]


def nodes_of(found: list[RunAction]) -> dict[int, str]:
    """The nodes that slices are given to, by number."""
    assigned = [each for action in found if isinstance(action, Assign) for each in action.assignments]
    return {int((each.unit.unit or "").rpartition("/")[2]): each.session.node for each in assigned}


def test_a_run_that_waits_is_placed_in_the_next_round_of_its_slices() -> None:
    [place] = actions(a_run(), a_session("n1"))
    assert isinstance(place, Place)
    assert (place.round, [(each.node, each.cores) for each in place.slices]) == (1, [("n1", 8)])

    again = a_run(a_slice(0, "cancelled", round=3, settled_ms=NOW), status="pending", session=None, due_ms=PLACE_MS)
    [place] = actions(again, a_session("n1"))
    assert isinstance(place, Place)
    assert place.round == 4


def test_a_session_that_does_not_run_slices_gets_none() -> None:
    plain = a_session("n1", offer=Offer(tasks={}, cores=8))
    unknown = a_session("n2", offer=None)
    no_cores = a_session("n3", offer=msgspec.structs.replace(OFFER, cores=0))
    [note] = actions(a_run(), plain, unknown, no_cores)
    assert note == NoteWait("waits for a node")


def test_the_slices_of_a_round_are_assigned_together_or_not_at_all() -> None:
    run = a_run(a_slice(0), a_slice(1))
    assert nodes_of(actions(run, a_session("n1"), a_session("n2"))) == {0: "n1", 1: "n2"}
    assert actions(run, a_session("n1"), a_session("n2"), others=(busy("n2"),)) == []


def test_a_new_round_that_its_nodes_could_not_hold_any_more_waits_for_cores_again() -> None:
    """A node went away after the run was placed: the sizes of its slices are fixed."""
    large, small = a_slice(0, cores=8), a_slice(1, cores=4)
    later = a_run(wants=RunDemand(demand=CoreDemand(processes=1)), id="018bcfe5-6800-7000-8000-00000000000b", rank=9)
    four = a_session("n3", offer=msgspec.structs.replace(OFFER, cores=4))
    run = a_run(large, small)
    decided = decide([run, later], pool(four, a_session("n2", offer=four.offer)), NOW)
    (_, again), (_, place) = decided.actions
    assert again == PlaceAgain(
        "waits for cores again: nodes were lost, and the others cannot hold slices of 8, 4 cores",
        (large.row, small.row),
    )
    assert isinstance(place, Place), "it keeps no node from the runs behind it"


def test_a_new_round_waits_for_a_node_that_was_lost_a_moment_ago() -> None:
    run = a_run(a_slice(0), a_slice(1))
    found = msgspec.structs.replace(pool(a_session("n1")), lost=(CoreNode("n2", 8),))
    assert decide([run], found, NOW).actions == ()


def test_slices_are_assigned_where_they_were_placed() -> None:
    """Another order of the nodes would take those that other runs ask for by their labels."""
    one = a_slice(0, node="n2")
    assert nodes_of(actions(a_run(one), a_session("n1"), a_session("n2"))) == {0: "n2"}
    assert nodes_of(actions(a_run(one), a_session("n1"), a_session("n2"), others=(busy("n2"),))) == {0: "n1"}


def test_a_round_that_cannot_be_assigned_keeps_its_nodes_from_later_runs() -> None:
    later = a_run()
    runs = [a_run(a_slice(0), a_slice(1)), busy("n2"), later]
    [(_, note)] = decide(runs, pool(a_session("n1"), a_session("n2")), NOW).actions
    assert note == NoteWait("waits for 1 core, behind earlier runs")


def test_a_lost_slice_goes_beside_another_one_of_its_run_only_if_no_other_node_has_its_cores() -> None:
    at_work = a_slice(0, "running", token=1, session=a_session("n1").id, cores=2)
    back = a_slice(1, token=1, cores=2, past=(lost("n2"),))
    assert nodes_of(actions(a_run(at_work, back), a_session("n1"), a_session("n3"))) == {1: "n3"}
    assert nodes_of(actions(a_run(at_work, back), a_session("n1"))) == {1: "n1"}
    assert nodes_of(actions(a_run(a_slice(0), a_slice(1)), a_session("n1"))) == {}, "not at the start"


def test_a_lost_slice_goes_to_no_node_whose_cores_the_others_hold() -> None:
    whole = a_slice(0, "running", token=1, session=a_session("n1").id, cores=OFFER.cores)
    back = a_slice(1, token=1, cores=1, past=(lost("n2"),))
    assert nodes_of(actions(a_run(whole, back), a_session("n1"))) == {}


def test_slices_go_to_degraded_nodes_only_if_the_others_have_no_room() -> None:
    busy, fine, small = (
        a_session("n1", degraded=True),
        a_session("n2"),
        a_session("n3", offer=msgspec.structs.replace(OFFER, cores=4)),
    )

    assert nodes_of(actions(a_run(a_slice(0), a_slice(1)), busy, fine, small)) == {0: "n2", 1: "n3"}
    large = actions(a_run(a_slice(0, cores=8), a_slice(1, cores=8)), busy, fine, small)
    assert nodes_of(large) == {0: "n2", 1: "n1"}
    again = a_slice(0, token=1, losses=1, past=(lost("n9"),))
    assert nodes_of(actions(a_run(again), busy, small)) == {0: "n3"}
    assert nodes_of(actions(a_run(again), busy)) == {0: "n1"}


def test_a_lost_slice_goes_to_another_node_and_to_one_that_lost_it_only_if_all_have() -> None:
    run = a_run(a_slice(0, token=1, past=(lost("n1"),)))
    assert nodes_of(actions(run, a_session("n1"), a_session("n2"))) == {0: "n2"}
    assert nodes_of(actions(run, a_session("n1"))) == {}, "in its old session"
    assert nodes_of(actions(run, a_session("n1", 2, started_ms=NOW - 10))) == {0: "n1"}
    run = a_run(a_slice(0, token=1, past=(lost("n1", ago_s=30),)))
    assert nodes_of(actions(run, a_session("n1"))) == {0: "n1"}


def test_a_node_that_refused_a_slice_gets_it_again_after_half_a_minute() -> None:
    assert nodes_of(actions(a_run(a_slice(0, token=1, past=(refused("n1", 29),))), a_session("n1"))) == {}
    assert nodes_of(actions(a_run(a_slice(0, token=1, past=(refused("n1", 30),))), a_session("n1"))) == {0: "n1"}


def test_windows_are_asked_about_and_end() -> None:
    held = {"token": 1, "session": a_session("n1").id, "claimed_ms": NOW - 20_000, "changed_ms": NOW - 5_000}
    asked = a_slice(0, "dispatched", expires_ms=NOW + 1, **held)
    [action] = actions(a_run(asked), a_session("n1"))
    assert action == Ask(asked.row)
    over = a_slice(0, "dispatched", expires_ms=NOW, **held)
    [action] = actions(a_run(over), a_session("n1"))
    assert action == TakeBack(over.row)


def test_slices_of_an_earlier_round_and_of_a_settled_job_are_cancelled() -> None:
    old, new = a_slice(0, "running", token=1, session="n1.1"), a_slice(0, round=2)
    cancel, assign = actions(a_run(old, new), a_session("n2"))
    assert cancel == CancelUnits((old.row,), "the run was started again since")
    assert nodes_of([assign]) == {0: "n2"}
    settled = a_run(old, status="failed", session=None, settled_ms=NOW)
    assert actions(settled, a_session("n2")) == [CancelUnits((old.row,), "the job is failed")]


def test_a_run_that_waits_for_its_retry_gets_nothing() -> None:
    assert actions(a_run(a_slice(0), status="scheduled", session=None, due_ms=NOW), a_session("n1")) == []


def test_the_slices_of_a_run_that_is_being_cancelled_do_not_begin() -> None:
    session = a_session("n1")
    assigned = a_slice(0, "dispatched", token=1, session=session.id, expires_ms=NOW + 1, changed_ms=NOW - 9_000)
    at_work, waits = a_slice(1, "running", token=1, session=session.id), a_slice(2, token=1, past=(lost("n2"),))
    run = a_run(assigned, at_work, waits, status="cancelling")
    assert actions(run, session) == [CancelUnits((assigned.row, waits.row), "the job is cancelling")]


def test_a_slice_whose_budget_is_spent_fails() -> None:
    spent = a_slice(0, token=3, starts=3, releases=3, losses=3, past=(lost("n1"),))
    [action] = actions(a_run(spent), a_session("n2"))
    assert isinstance(action, FailUnit)
    assert action.error.code == "node_lost"


def test_runs_are_served_in_the_order_of_their_rank() -> None:
    first: Job = msgspec.structs.replace(a_run().job, id="018bcfe5-6800-7000-8000-000000000002", rank=1)
    wants = RunDemand(demand=CoreDemand(processes=8))
    early, late = PlacedRun(first, wants, ()), a_run(wants=wants, rank=2)
    decided = decide([late, early], pool(a_session("n1")), NOW)
    assert [(run is early, type(action)) for run, action in decided.actions] == [(True, Place), (False, NoteWait)]
