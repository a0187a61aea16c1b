"""Why no nodes could ever hold a run, before it is submitted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from mainstay.load.placement import CoreDemand, CoreNode, RunRequest, allocate, demand_problem
from tests.load.placement.test_allocation import _demands, _pools

POOL = [
    CoreNode("a1", 8, {"zone": "a", "gpu": "yes"}),
    CoreNode("a2", 4, {"zone": "a"}),
    CoreNode("b1", 4, {"zone": "b"}),
]


@pytest.mark.parametrize(
    ("demand", "problem"),
    [
        (CoreDemand(processes=16), ""),
        (CoreDemand(nodes=3), ""),
        (CoreDemand(share="exclusive", most=100), ""),
        (CoreDemand(processes=17), "it needs 17 cores, and the nodes have 16"),
        (CoreDemand(processes=13, labels={"zone": "a"}), "it needs 13 cores, and the nodes with zone=a have 12"),
        (CoreDemand(nodes=4), "it needs 4 nodes, and there are 3: a1, a2, b1"),
        (CoreDemand(nodes=3, labels={"zone": "a"}), "it needs 3 nodes with zone=a, and there are 2: a1, a2"),
        (
            CoreDemand(nodes=3, processes=15),
            "it needs 15 cores on 3 nodes, 5 on a node; 1 of 3 has that",
        ),
        (CoreDemand(labels={"zone": "c"}), "no node has zone=c; the nodes have: zone=a, zone=b"),
        (CoreDemand(labels={"rack": "1"}), "no node has a label 'rack'; the labels of the nodes: gpu, zone"),
        (CoreDemand(labels={"zone": "b", "gpu": "yes"}), "no node has all of gpu=yes, zone=b"),
        (CoreDemand(nodes=4, processes=3), "3 processes cannot be spread over 4 nodes"),
        (CoreDemand(nodes=0), "a run needs a node at least, not 0"),
        (CoreDemand(processes=0), "a run needs a process at least, not 0"),
    ],
)
def test_a_demand_that_no_nodes_could_hold_is_refused_with_what_exists(demand: CoreDemand, problem: str) -> None:
    assert demand_problem(demand, POOL) == problem


def test_without_nodes_nothing_can_run() -> None:
    assert demand_problem(CoreDemand(), []) == "no node runs slices of load tests"


@settings(deadline=None)
@given(pool=_pools, demand=_demands)
def test_what_is_not_refused_gets_cores_of_idle_nodes(pool: list[CoreNode], demand: CoreDemand) -> None:
    found = allocate(pool, [RunRequest("job", 0, demand)])
    assert bool(found.placed) == (demand_problem(demand, pool) == "")
