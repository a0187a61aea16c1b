"""Load runs on simulated nodes: many seeds are good, and planted bugs are found."""

from __future__ import annotations

import pytest

from sim.load_cluster import LoadClusterWorld
from sim.runs import RunResult, simulate

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 8
#: how many seeds a planted bug may take to be found
PATIENCE = 40


def first_failure(first: int = 0) -> RunResult:
    """The first seed that fails. The seeds before `first` are known to be good, and are left out to save time."""
    seeds = range(first, PATIENCE)
    found = next((result for seed in seeds if (result := simulate(LoadClusterWorld, seed)).failed), None)
    assert found is not None, f"no seed of {seeds} found it"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 4))
def test_no_history_of_faults_breaks_a_promise_of_load_runs(first: int) -> None:
    for seed in range(first, first + 4):
        result = simulate(LoadClusterWorld, seed)
        assert not result.failed, f"python -m sim --world runs --replay {seed}: {result.error}"


def test_a_seed_gives_the_same_history_again() -> None:
    one, again = simulate(LoadClusterWorld, 1), simulate(LoadClusterWorld, 1)
    assert not one.failed, one.where
    assert (one.digest, one.steps, one.virtual_s) == (again.digest, again.steps, again.virtual_s)
