"""A thousand nodes in simulated time: what the leader does grows with their number, and not faster."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mainstay.bus import BusMessage
from mainstay.cluster.members_service import MembersService
from sim.leader_cost import LeaderCost, cost_lines, measure

pytestmark = pytest.mark.usefixtures("quiet")

#: each twice the one before
SIZES = (250, 500, 1000)


def is_linear(costs: list[LeaderCost]) -> bool:
    """Whether twice the nodes need at most a tenth more than twice the calls."""
    return all(more.calls_each < 1.1 * fewer.calls_each for fewer, more in pairwise(costs))


@pytest.mark.slow
def test_the_work_of_a_leader_grows_with_the_number_of_its_nodes_and_not_faster() -> None:
    costs = [measure(nodes, seconds=4.0, counts=True) for nodes in SIZES]

    assert is_linear(costs), cost_lines(costs)
    assert costs[0].callbacks_each > 0.5, "each node sends a beat every 2 s"


def test_a_leader_that_looks_at_all_nodes_for_each_beat_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = MembersService._take_beat

    async def slow(self: MembersService, message: BusMessage) -> None:
        await take(self, message)
        self.nodes()

    monkeypatch.setattr(MembersService, "_take_beat", slow)
    assert not is_linear([measure(nodes, seconds=4.0, counts=True) for nodes in (100, 200)])


def test_the_same_cluster_costs_the_same_calls_again() -> None:
    one, again = (measure(20, seconds=4.0, counts=True) for _ in range(2))
    assert (one.calls, one.callbacks) == (again.calls, again.callbacks)
