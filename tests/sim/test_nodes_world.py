"""Node jobs in simulation: many seeds are good, and planted bugs are found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainstay.node import changes, decisions, placement_duty
from mainstay.stores import change_check
from mainstay.stores.memory import directory
from sim.nodes import BigNodesWorld, NodesWorld
from sim.runs import RunResult, simulate

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 200
#: how many seeds a planted bug may take to be found
PATIENCE = 60


def first_failure() -> RunResult:
    found = next((result for seed in range(PATIENCE) if (result := simulate(NodesWorld, seed)).failed), None)
    assert found is not None, f"no seed below {PATIENCE} found it"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_no_history_of_faults_breaks_a_promise_of_node_jobs(first: int) -> None:
    for seed in range(first, first + 50):
        result = simulate(NodesWorld, seed)
        assert not result.failed, f"python -m sim --world nodes --replay {seed}: {result.error}"


def test_a_seed_gives_the_same_history_again() -> None:
    for seed in range(3):
        assert simulate(NodesWorld, seed).digest == simulate(NodesWorld, seed).digest


@pytest.mark.slow
def test_twenty_nodes_keep_the_promises_too() -> None:
    result = simulate(BigNodesWorld, 1)
    assert not result.failed, result.error


def test_a_store_without_the_check_of_epochs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory.LeadershipTable, "fence", lambda self, lead, lease_ms: None)
    assert "which is over" in first_failure().error


def test_a_store_without_the_check_of_tokens_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = change_check.judge

    def gullible(row: Any, change: Any, since: Any) -> Any:
        outcome = judge(row, change, since)
        return "applied" if outcome == "stale" else outcome

    monkeypatch.setattr("mainstay.stores.memory.store.judge", gullible)
    first_failure()


def test_a_store_that_gives_rows_to_closed_sessions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstay.stores.memory.store.new_holder", lambda change: None)
    assert "which is closed" in first_failure().error


def test_assignments_without_their_job_in_the_write_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    changes_of = changes.changes_of

    def without_the_job(action: Any, view: Any, *arguments: Any, **options: Any) -> Any:
        made = changes_of(action, view, *arguments, **options)
        return made[1:] if isinstance(action, decisions.Assign) else made

    monkeypatch.setattr(placement_duty, "changes_of", without_the_job)
    assert "was assigned while the job was" in first_failure().error


def test_a_leader_that_counts_no_quorum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions.NodeJobView, "has_quorum", property(lambda self: True))
    assert "without a warning" in first_failure().error


def test_a_leader_phase_that_is_created_again_after_a_failover_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of the unit follows from the job alone. Drawn by chance, a leader whose answer was lost makes a second."""
    changes_of = changes.changes_of

    def with_another_id(action: Any, view: Any, *arguments: Any, epoch: int, **options: Any) -> Any:
        made = changes_of(action, view, *arguments, epoch=epoch, **options)
        if not isinstance(action, decisions.BeginLeaderPhase):
            return made
        [job, *rest] = made
        [unit] = job.units
        other = msgspec.structs.replace(unit, id=f"{unit.id[:-4]}{epoch:04x}")
        return [msgspec.structs.replace(job, units=(other,)), *rest]

    monkeypatch.setattr(placement_duty, "changes_of", with_another_id)
    first_failure()
