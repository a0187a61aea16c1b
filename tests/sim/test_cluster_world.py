"""A cluster in simulation: many seeds are good, and planted bugs are found."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.cluster import members_service, membership, silence
from mainstay.cluster.isolation import Isolation
from mainstay.stores.memory import directory
from mainstay.stores.remote.service import StoreService
from mainstay.worker import Supervisor
from mainstay.worker.outbox import Recording
from sim.cluster import ClusterWorld
from sim.runs import RunResult, simulate

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 20
#: how many seeds a planted bug may take to be found
PATIENCE = 60


def first_failure() -> RunResult:
    found = next((result for seed in range(PATIENCE) if (result := simulate(ClusterWorld, seed)).failed), None)
    assert found is not None, f"no seed below {PATIENCE} found it"
    print("FOUND", found.seed, found.error[:200])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_no_history_of_faults_breaks_a_promise_of_clusters(first: int) -> None:
    for seed in range(first, first + 10):
        result = simulate(ClusterWorld, seed)
        assert not result.failed, f"python -m sim --world cluster --replay {seed}: {result.error}"


def test_a_seed_gives_the_same_history_again() -> None:
    one, again = simulate(ClusterWorld, 1), simulate(ClusterWorld, 1)
    assert not one.failed, one.where
    assert (one.digest, one.steps, one.virtual_s) == (again.digest, again.steps, again.virtual_s)


def test_a_store_without_the_check_of_epochs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory.LeadershipTable, "fence", lambda self, lead, lease_ms: None)
    assert "which is over" in first_failure().error


def test_a_node_that_works_on_without_managers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Isolation, "_isolate", lambda self: None)
    first_failure()


def test_isolated_engines_that_are_not_killed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their jobs may ignore the request to stop."""
    monkeypatch.setattr(Supervisor, "_kill_isolated", lambda self, engines: None)
    first_failure()


def test_a_manager_that_closes_a_node_without_asking_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "_denied", lambda state, record: True)
    first_failure()


def test_a_beat_that_does_not_renew_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known_beat = membership._known_beat

    def deaf(state: Any, record: Any, beat: Any, now_s: float) -> Any:
        before = record.heard_s, record.own_s
        actions = known_beat(state, record, beat, now_s)
        record.heard_s, record.own_s = before
        return actions

    monkeypatch.setattr(membership, "_known_beat", deaf)
    first_failure()


def test_a_manager_that_believes_only_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_heard_of", lambda state, record, heard_s, now_s: [])
    first_failure()


def test_a_manager_that_answers_beats_which_its_leader_cannot_know_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_service, "answers_beat", lambda state, beat, now_s, **_: True)
    first_failure()


def test_a_leader_that_forgets_who_else_may_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    first_failure()


def test_a_node_that_seals_what_it_keeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Recording.__init__

    def sealing(self: Any, store: Any) -> None:
        init(self, store)
        self._seals = True

    monkeypatch.setattr(Recording, "__init__", sealing)
    first_failure()


def test_a_manager_that_decides_from_an_old_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreService, "_was_old", lambda self, wire, result: False)
    first_failure()
