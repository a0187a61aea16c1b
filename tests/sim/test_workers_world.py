"""Direct workers in simulation: many seeds are good, and planted bugs are found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainstay.stores import change_check
from mainstay.stores.memory import directory, store
from sim.faults import Fault
from sim.runs import RunResult, simulate
from sim.shrink import shrink
from sim.workers import WorkersWorld

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 200
#: how many seeds a planted bug may take to be found
PATIENCE = 100


def first_failure() -> RunResult | None:
    return next((result for seed in range(PATIENCE) if (result := simulate(WorkersWorld, seed)).failed), None)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_no_history_of_faults_loses_or_doubles_a_job(first: int) -> None:
    for seed in range(first, first + 50):
        result = simulate(WorkersWorld, seed)
        assert not result.failed, f"python -m sim --world workers --replay {seed}: {result.error}"


def test_a_seed_gives_the_same_history_again() -> None:
    for seed in range(5):
        assert simulate(WorkersWorld, seed).digest == simulate(WorkersWorld, seed).digest


def test_seeds_give_different_histories() -> None:
    assert len({simulate(WorkersWorld, seed).digest for seed in range(5)}) == 5


def test_a_store_that_takes_writes_with_an_old_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = change_check.judge

    def gullible(row: Any, change: Any, since: Any) -> Any:
        outcome = judge(row, change, since)
        return "applied" if outcome == "stale" else outcome

    monkeypatch.setattr("mainstay.stores.memory.store.judge", gullible)

    assert first_failure() is not None


def test_a_lead_that_passes_on_without_a_new_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lead = directory.LeadershipTable.lead

    def same_epoch(self: Any, *arguments: Any) -> Any:
        taken = msgspec.structs.replace(lead(self, *arguments), epoch=1)
        self._current[taken.name] = taken
        return taken

    monkeypatch.setattr(directory.LeadershipTable, "lead", same_epoch)

    found = first_failure()
    assert found is not None
    assert "two sessions led in epoch 1" in found.error


def test_a_store_that_forgets_keys_is_found_and_its_faults_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    insert = store.MemoryStore.insert

    async def forgetful(self: Any, jobs: Any, **options: Any) -> Any:
        return await insert(self, [msgspec.structs.replace(job, key=None) for job in jobs], **options)

    monkeypatch.setattr(store.MemoryStore, "insert", forgetful)

    found = next(
        result for seed in range(PATIENCE) if (result := simulate(WorkersWorld, seed)).failed and len(result.faults) > 2
    )
    assert "stands for several jobs" in found.error

    def fails(faults: Any) -> bool:
        return simulate(WorkersWorld, found.seed, faults=faults).failed

    needed: list[Fault] = shrink(found.faults, fails, runs=30)
    assert len(needed) < len(found.faults)
