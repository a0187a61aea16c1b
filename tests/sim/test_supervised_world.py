"""Supervised workers in simulation: many seeds are good, and planted bugs are found."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.worker.engine_record import EngineRecord
from mainstay.worker.heartbeat import SupervisorLoops
from sim.runs import RunResult, simulate
from sim.supervised import SupervisedWorld

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 200
#: how many seeds a planted bug may take to be found
PATIENCE = 30


def first_failure() -> RunResult | None:
    return next((result for seed in range(PATIENCE) if (result := simulate(SupervisedWorld, seed)).failed), None)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_no_history_of_faults_loses_or_doubles_a_job(first: int) -> None:
    for seed in range(first, first + 50):
        result = simulate(SupervisedWorld, seed)
        assert not result.failed, f"python -m sim --world supervised --replay {seed}: {result.error}"


def test_a_seed_gives_the_same_history_again() -> None:
    for seed in range(5):
        one, again = simulate(SupervisedWorld, seed), simulate(SupervisedWorld, seed)
        assert not one.failed, one.where
        assert (one.digest, one.steps, one.virtual_s) == (again.digest, again.steps, again.virtual_s)


def test_a_supervisor_whose_drain_does_not_reach_its_engines_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineRecord, "drain", lambda self, grace_s: self.leaving.set())

    found = first_failure()
    assert found is not None
    assert "returned 1" in found.error


def test_a_supervisor_that_stops_its_heartbeats_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    beat_once = SupervisorLoops._beat_once

    async def only_first(self: Any) -> None:
        if not self._heartbeat_stored.is_set():
            await beat_once(self)

    monkeypatch.setattr(SupervisorLoops, "_beat_once", only_first)

    found = first_failure()
    assert found is not None
