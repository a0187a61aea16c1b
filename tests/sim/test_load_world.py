"""Load runs on simulated nodes: many seeds are good, and planted bugs are found."""

from __future__ import annotations

import pytest

from mainstay.bus import BusMessage
from mainstay.load.fleet.fleet_load import FleetLoad
from mainstay.load.fleet.fleet_runner import FleetRunner
from mainstay.load.fleet.slice_link import SliceLink
from mainstay.load.placement import decisions
from sim.faults import Fault
from sim.load_cluster import LoadClusterWorld
from sim.runs import RunResult, simulate

pytestmark = pytest.mark.usefixtures("quiet")

#: as many as take some seconds; `make sim` runs more
SEEDS = 16
#: how many seeds a planted bug may take to be found
PATIENCE = 40


def first_failure() -> RunResult:
    """The first seed that fails."""
    seeds = range(PATIENCE)
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
    one, again = simulate(LoadClusterWorld, 2), simulate(LoadClusterWorld, 2)
    assert not one.failed, one.where
    assert (one.digest, one.steps, one.virtual_s) == (again.digest, again.steps, again.virtual_s)


# planted bugs: more of them are in the scripted scenarios ---------------------------------------------


def test_a_placement_that_forgets_cores_in_use_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions._Account, "_hold", lambda *_: None)
    assert "cores, and slices with" in first_failure().error


def test_a_leader_that_takes_windows_of_any_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_link(self: FleetRunner, message: BusMessage) -> SliceLink | None:
        number = int(message.subject.rpartition(".")[2])
        return self._slices[number].live if number < len(self._slices) else None

    monkeypatch.setattr(FleetRunner, "_link_of", any_link)
    faults = [Fault("flood", "n2", at_s, 4.0) for at_s in (8.0, 14.0, 20.0, 26.0)]
    assert any(simulate(LoadClusterWorld, seed, faults=faults).failed for seed in range(3))


def test_a_successor_that_orders_a_go_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(self: FleetLoad, go: object, recorded: object) -> None:
        del go, recorded

    monkeypatch.setattr(FleetLoad, "_adopt", forget)
    faults = [Fault("leader", "", at_s, 10.0) for at_s in (20.0, 40.0, 60.0, 80.0)]
    assert any(simulate(LoadClusterWorld, seed, faults=faults).failed for seed in range(3))
