"""A cluster in simulation: many seeds are good, and planted bugs are found."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.cluster import members_service, membership
from mainstay.cluster.isolation import Isolation
from mainstay.stores.remote import service
from mainstay.worker.outbox import Recording
from sim.cluster import ClusterWorld
from sim.faults import Fault
from sim.runs import RunResult, simulate

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 12
#: how many seeds a planted bug may take to be found
PATIENCE = 60


def first_failure(first: int = 0) -> RunResult:
    """The first seed that fails. The seeds before `first` are known to be good, and are left out to save time."""
    seeds = range(first, PATIENCE)
    found = next((result for seed in seeds if (result := simulate(ClusterWorld, seed)).failed), None)
    assert found is not None, f"no seed of {seeds} found it"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 6))
def test_no_history_of_faults_breaks_a_promise_of_clusters(first: int) -> None:
    for seed in range(first, first + 6):
        result = simulate(ClusterWorld, seed)
        assert not result.failed, f"python -m sim --world cluster --replay {seed}: {result.error}"


def test_a_seed_gives_the_same_history_again() -> None:
    one, again = simulate(ClusterWorld, 1), simulate(ClusterWorld, 1)
    assert not one.failed, one.where
    assert (one.digest, one.steps, one.virtual_s) == (again.digest, again.steps, again.virtual_s)


def test_a_node_that_works_on_without_managers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Isolation, "_isolate", lambda self: None)
    first_failure(5)


def test_managers_that_answer_a_flood_of_one_client_at_once_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [Fault("flood", "c1", 12.0, 1.0)]
    assert not simulate(ClusterWorld, 0, faults=faults).failed
    monkeypatch.setattr(service, "_CALLER_SHARE", 1)
    assert "reads of c1 at once, of 125" in simulate(ClusterWorld, 0, faults=faults).error


def test_a_beat_that_does_not_renew_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known_beat = membership._known_beat

    def deaf(state: Any, record: Any, beat: Any, now_s: float) -> Any:
        before = record.heard_s, record.own_s
        actions = known_beat(state, record, beat, now_s)
        record.heard_s, record.own_s = before
        return actions

    monkeypatch.setattr(membership, "_known_beat", deaf)
    first_failure()


def test_a_manager_that_answers_beats_which_its_leader_cannot_know_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_service, "answers_beat", lambda state, beat, now_s, **_: True)
    assert "beats and is answered" in first_failure(9).error


def test_a_node_that_seals_what_it_keeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Recording.__init__

    def sealing(self: Any, store: Any) -> None:
        init(self, store)
        self._seals = True

    monkeypatch.setattr(Recording, "__init__", sealing)
    assert "kept ends" in first_failure().error
