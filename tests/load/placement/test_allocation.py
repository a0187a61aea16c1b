"""Which run gets which cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mainstay.load.placement import (
    Allocation,
    CoreDemand,
    CoreNode,
    HeldCores,
    PoolShare,
    RunRequest,
    SliceCores,
    allocate,
    allocation,
)

SHARES: tuple[PoolShare, ...] = ("low", "normal", "high", "exclusive", "auto")
MANY = 10_000


def nodes(*cores: int, labels: dict[str, str] | None = None) -> list[CoreNode]:
    return [CoreNode(f"n{at}", each, labels or {}) for at, each in enumerate(cores, 1)]


def run(job: str, share: PoolShare = "auto", *, rank: int = 0, **demand: object) -> RunRequest:
    return RunRequest(job, rank, CoreDemand(share=share, **{"most": MANY, **demand}))  # type: ignore[arg-type]


def total(found: Allocation, job: str) -> int:
    return sum(each.cores for each in found.placed.get(job, ()))


def sizes(found: Allocation, job: str) -> dict[str, int]:
    return {each.node: each.cores for each in found.placed[job]}


def causes(found: Allocation) -> dict[str, str]:
    return {each.request.job: each.cause for each in found.waiting}


# shares ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("high", "low"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("pool", [(24,), (8, 8, 8), (4,) * 6, (20, 3, 1)])
def test_a_high_and_a_low_run_share_24_cores_as_18_and_6(pool: tuple[int, ...], high: int, low: int) -> None:
    found = allocate(nodes(*pool), [run("h", "high", rank=high), run("l", "low", rank=low)])
    assert (total(found, "h"), total(found, "l")) == (18, 6)


@pytest.mark.parametrize(
    ("share", "cores"), [("low", 6), ("normal", 18), ("high", 24), ("exclusive", 24), ("auto", 24)]
)
def test_a_run_alone_gets_the_most_of_its_class(share: PoolShare, cores: int) -> None:
    assert total(allocate(nodes(8, 8, 8), [run("a", share)]), "a") == cores


@pytest.mark.parametrize("share", SHARES)
def test_a_run_gets_no_more_cores_than_it_has_work_for(share: PoolShare) -> None:
    assert total(allocate(nodes(8, 8, 8), [run("a", share, most=3)]), "a") == 3


def test_runs_of_one_class_get_equal_parts() -> None:
    found = allocate(nodes(8, 8, 8), [run(job) for job in "abcd"])
    assert [total(found, job) for job in "abcd"] == [6, 6, 6, 6]


def test_what_is_left_goes_to_the_lowest_class_first() -> None:
    found = allocate(nodes(24), [run("n", "normal"), run("l", "low"), run("a", "auto", most=4)])
    assert [total(found, job) for job in "lan"] == [6, 4, 14]


def test_the_share_is_counted_over_all_cores_of_the_pool_not_the_free_ones() -> None:
    found = allocate(nodes(24), [run("n", "normal")], held=[HeldCores("x", "n1", 18)])
    assert total(found, "n") == 6
    found = allocate(nodes(24), [run("n", "normal")], held=[HeldCores("x", "n1", 19)])
    assert causes(found) == {"n": "cores"}


def test_the_share_is_that_of_the_nodes_with_the_labels() -> None:
    pool = [*nodes(8, 8), CoreNode("a1", 4, {"zone": "a"}), CoreNode("a2", 4, {"zone": "a"})]
    found = allocate(pool, [run("h", "low", labels={"zone": "a"})])
    assert sum(sizes(found, "h").values()) == 2
    assert sizes(found, "h").keys() <= {"a1", "a2"}


# how cores are dealt ---------------------------------------------------------------------------------


def test_a_number_of_processes_is_exact_whatever_the_share() -> None:
    assert sizes(allocate(nodes(8, 8, 8), [run("a", "low", processes=12)]), "a") == {"n1": 8, "n2": 4}


def test_as_few_nodes_as_possible_are_used_and_large_ones_stay_free() -> None:
    assert sizes(allocate(nodes(16, 4, 6), [run("a", processes=5)]), "a") == {"n3": 5}
    assert sizes(allocate(nodes(1, 8), [run("a", most=8)]), "a") == {"n2": 8}


def test_a_number_of_nodes_is_exact_and_the_cores_are_even() -> None:
    assert sizes(allocate(nodes(8, 4, 8, 8), [run("a", nodes=3)]), "a") == {"n1": 8, "n3": 8, "n4": 8}
    assert sizes(allocate(nodes(8, 8, 5), [run("a", nodes=3)]), "a") == {"n1": 6, "n2": 6, "n3": 5}
    assert sizes(allocate(nodes(8, 8, 8), [run("a", "low", nodes=3)]), "a") == {"n1": 2, "n2": 2, "n3": 2}


def degraded(pool: list[CoreNode], *names: str) -> list[CoreNode]:
    return [msgspec.structs.replace(node, degraded=node.name in names) for node in pool]


def test_degraded_nodes_are_used_only_where_the_others_have_no_room() -> None:
    pool = degraded(nodes(8, 8, 4), "n1")

    assert sizes(allocate(pool, [run("a", processes=4)]), "a") == {"n3": 4}
    assert sizes(allocate(pool, [run("a", processes=10)]), "a") == {"n2": 8, "n3": 2}
    assert sizes(allocate(pool, [run("a", processes=14)]), "a") == {"n2": 8, "n3": 4, "n1": 2}
    assert sizes(allocate(pool, [run("a", nodes=2, processes=8)]), "a") == {"n2": 4, "n3": 4}


def test_a_run_that_only_a_degraded_node_can_hold_does_not_wait() -> None:
    pool = degraded(nodes(8, 8, 4), "n1")

    assert sizes(allocate(pool, [run("a", nodes=2, processes=16)]), "a") == {"n1": 8, "n2": 8}
    assert sizes(allocate(degraded(nodes(4, 4), "n1", "n2"), [run("a", processes=8)]), "a") == {"n1": 4, "n2": 4}


def test_processes_are_dealt_evenly_over_a_number_of_nodes() -> None:
    found = allocate(nodes(4, 4, 4), [run("a", nodes=3, processes=7)])
    assert found.placed["a"] == (SliceCores("n1", 3), SliceCores("n2", 2), SliceCores("n3", 2))


def test_each_of_the_nodes_gets_a_core_at_least() -> None:
    assert sizes(allocate(nodes(8, 8, 8), [run("a", most=1, nodes=3)]), "a") == {"n1": 1, "n2": 1, "n3": 1}


# the order of the queue ------------------------------------------------------------------------------


def test_a_run_that_waits_in_front_is_not_overtaken() -> None:
    held = [HeldCores("x", "n1", 6)]
    found = allocate(nodes(8, 8), [run("big", processes=12), run("small", rank=1, processes=1)], held=held)
    assert found.placed == {}
    assert causes(found) == {"big": "cores", "small": "behind"}
    assert [(each.place, each.of) for each in found.waiting] == [(1, 2), (2, 2)]
    assert found.waiting[1].jobs == ("big",)


def test_a_later_run_uses_the_nodes_that_the_one_in_front_cannot_use() -> None:
    pool = [CoreNode("a", 4, {"zone": "a"}), CoreNode("b", 4, {"zone": "b"})]
    front = run("front", processes=4, labels={"zone": "a"})
    found = allocate(pool, [front, run("later", rank=1)], held=[HeldCores("x", "a", 1)])
    assert sizes(found, "later") == {"b": 4}


def test_a_run_that_the_nodes_could_never_hold_blocks_no_other() -> None:
    requests = [run("huge", processes=100), run("none", rank=1, labels={"gpu": "1"}), run("small", rank=2)]
    found = allocate(nodes(8), requests)
    assert total(found, "small") == 8
    assert causes(found) == {"huge": "too_large", "none": "no_node"}


def test_the_node_that_a_lost_slice_waits_for_is_not_given_to_another_run() -> None:
    found = allocate(nodes(8), [run("a", processes=1)], held=[HeldCores("x", "n1", 6)], reserved={"n1": "x"})
    assert found.placed == {}
    assert found.waiting[0].jobs == ("x",)


# alone -----------------------------------------------------------------------------------------------


def test_an_exclusive_run_waits_until_its_pool_is_idle() -> None:
    found = allocate(nodes(8, 8), [run("e", "exclusive", processes=2)], held=[HeldCores("x", "n2", 1)])
    assert causes(found) == {"e": "beside"}
    assert found.waiting[0].jobs == ("x",)


def test_nothing_runs_beside_an_exclusive_run() -> None:
    found = allocate(nodes(8, 8), [run("e", "exclusive", most=2), run("l", rank=1)])
    assert total(found, "e") == 2
    assert causes(found) == {"l": "beside"}
    held = [HeldCores("e", "n1", 2)]
    found = allocate(nodes(8, 8), [run("l")], held=held, exclusive={"e": {}})
    assert causes(found) == {"l": "beside"}
    assert found.waiting[0].jobs == ("e",)


def test_a_run_with_other_nodes_runs_beside_an_exclusive_one() -> None:
    pool = [CoreNode("a", 4, {"zone": "a"}), CoreNode("b", 4, {"zone": "b"})]
    requests = [run("e", "exclusive", labels={"zone": "a"}), run("l", rank=1, labels={"zone": "b"})]
    found = allocate(pool, requests)
    assert (sizes(found, "e"), sizes(found, "l")) == ({"a": 4}, {"b": 4})


def test_an_exclusive_run_does_not_overtake_one_that_waits_for_some_of_its_nodes() -> None:
    pool = [CoreNode("a", 4, {"zone": "a"}), CoreNode("b", 4), CoreNode("c", 4)]
    requests = [run("f", processes=4, labels={"zone": "a"}), run("e", "exclusive", rank=1, processes=2)]
    found = allocate(pool, requests, held=[HeldCores("x", "a", 1)])
    assert found.placed == {}


# properties ------------------------------------------------------------------------------------------

_labels = st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}])
_pools = st.lists(st.tuples(st.integers(1, 24), _labels, st.booleans()), min_size=0, max_size=6).map(
    lambda found: [CoreNode(f"n{at}", *each) for at, each in enumerate(found)]
)
_demands = st.builds(
    CoreDemand,
    nodes=st.none() | st.integers(0, 5),
    processes=st.none() | st.integers(0, 30),
    most=st.integers(1, 40),
    share=st.sampled_from(SHARES),
    labels=_labels,
)


def _requests(demands: Sequence[CoreDemand]) -> list[RunRequest]:
    return [RunRequest(f"job{at}", at // 2, demand) for at, demand in enumerate(demands)]


def check(
    pool: Sequence[CoreNode], requests: Sequence[RunRequest], held: Sequence[HeldCores], found: Allocation
) -> None:
    """What holds for every allocation."""
    used = Counter({node.name: 0 for node in pool})
    for each in held:
        used[each.node] += each.cores
    demands = {each.job: each.demand for each in requests}
    waiting = [each.request.job for each in found.waiting]
    assert sorted([*found.placed, *waiting]) == sorted(demands), "each run is placed or waits"
    for job, slices in found.placed.items():
        demand = demands[job]
        assert slices
        assert all(each.cores > 0 for each in slices)
        assert len({each.node for each in slices}) == len(slices), "one slice on a node"
        matching = {node.name for node in pool if demand.labels.items() <= node.labels.items()}
        assert {each.node for each in slices} <= matching
        cores = [each.cores for each in slices]
        if demand.processes is not None:
            assert sum(cores) == demand.processes
        else:
            assert sum(cores) <= max(demand.most, demand.nodes or 1)
        if demand.nodes is not None:
            assert len(slices) == demand.nodes
            assert max(cores) - min(cores) <= 1
        if demand.share == "exclusive":
            others = [each for other, theirs in found.placed.items() if other != job for each in theirs]
            assert not matching & {each.node for each in others}
            assert not matching & {each.node for each in held}
        for each in slices:
            used[each.node] += each.cores
    capacity = {node.name: node.cores for node in pool}
    assert all(cores <= capacity[name] for name, cores in used.items()), "no core twice"


@settings(deadline=None, max_examples=300)
@given(pool=_pools, demands=st.lists(_demands, max_size=6), data=st.data())
def test_no_core_is_given_twice_and_a_run_gets_all_or_nothing(
    pool: list[CoreNode], demands: list[CoreDemand], data: st.DataObject
) -> None:
    held = [HeldCores("old", node.name, data.draw(st.integers(0, node.cores))) for node in pool]
    held = [each for each in held if each.cores]
    requests = _requests(demands)
    found = allocate(pool, requests, held=held)
    check(pool, requests, held, found)
    assert allocate(list(reversed(pool)), list(reversed(requests)), held=held) == found, "the order of input is nothing"


@settings(deadline=None)
@given(pool=_pools, demands=st.lists(_demands, min_size=1, max_size=6))
def test_the_first_run_that_the_idle_nodes_could_hold_is_placed(
    pool: list[CoreNode], demands: list[CoreDemand]
) -> None:
    found = allocate(pool, _requests(demands))
    impossible = [each for each in found.waiting if each.cause in ("no_node", "too_large")]
    assert found.placed or len(impossible) == len(demands)


@pytest.mark.parametrize("share", SHARES)
def test_a_larger_pool_never_gives_a_run_fewer_cores(share: PoolShare) -> None:
    given_cores = [total(allocate(nodes(cores), [run("a", share)]), "a") for cores in range(1, 25)]
    assert given_cores == sorted(given_cores)
    assert given_cores[0] == 1


def test_a_higher_class_never_gets_fewer_cores_alone() -> None:
    for cores in range(1, 25):
        low, normal, high = [
            total(allocate(nodes(cores), [run("a", share)]), "a") for share in ("low", "normal", "high")
        ]
        assert low <= normal <= high <= cores


@pytest.mark.parametrize("runs", [40, 1000])
def test_each_run_of_a_long_queue_is_tried_about_once(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To place all admitted runs again for each request would take minutes for a long queue."""
    tried: list[str] = []
    place = allocation._Cores.place

    def counted(cores: allocation._Cores, run: allocation._Run) -> bool:
        tried.append(run.job)
        return place(cores, run)

    monkeypatch.setattr(allocation._Cores, "place", counted)
    found = allocate(nodes(*[8] * 100), [run(f"r{at:04}", rank=at, processes=1) for at in range(runs)])
    assert len(found.placed) == min(runs, 800)
    # once when it is admitted and once in the order of the classes, and all of them once more for the first that waits
    assert len(tried) <= 3 * runs


def test_an_admission_that_needs_others_to_move_places_them_again() -> None:
    """The first run is on the node that only the second one can use."""
    pool = [CoreNode("a", 4, {"zone": "a"}), CoreNode("b", 2)]
    alone = run("e", "exclusive", rank=1, processes=4, labels={"zone": "a"})
    found = allocate(pool, [run("any", "low", processes=1), alone])
    assert (sizes(found, "any"), sizes(found, "e")) == ({"b": 1}, {"a": 4})


def test_a_run_that_needs_no_label_leaves_the_nodes_that_have_it_to_others() -> None:
    pool = [CoreNode("g1", 4, {"gpu": "1"}), CoreNode("n1", 4)]
    found = allocate(pool, [run("a", processes=4), run("b", rank=1, processes=4, labels={"gpu": "1"})])
    assert (sizes(found, "a"), sizes(found, "b")) == ({"n1": 4}, {"g1": 4})
    assert sizes(allocate(pool, [run("a", processes=4)]), "a") == {"n1": 4}, "also before any run asks for the label"


def test_a_run_keeps_its_place_for_nodes_that_were_lost_a_moment_ago() -> None:
    """A node that restarts is away for some seconds, and the others must not be gone meanwhile for hours."""
    requests = [run("all", nodes=4, processes=4), run("small", rank=1, processes=1)]
    found = allocate(nodes(8, 8, 8), requests, lost=[CoreNode("n4", 8)])
    assert causes(found) == {"all": "lost", "small": "behind"}
    found = allocate(nodes(8, 8, 8), requests)
    assert (causes(found), sizes(found, "small")) == ({"all": "too_large"}, {"n1": 1})
    requests = [run("gpu", labels={"gpu": "1"}), run("b", rank=1)]
    found = allocate(nodes(8), requests, lost=[CoreNode("g", 8, {"gpu": "1"})])
    assert (causes(found), sizes(found, "b")) == ({"gpu": "lost"}, {"n1": 8})


def test_a_large_pool_is_divided_quickly() -> None:
    found = allocate([CoreNode(f"n{at}", 64) for at in range(300)], [run(f"r{at}", rank=at) for at in range(20)])
    assert sum(total(found, job) for job in found.placed) == 300 * 64


class AllocatorMachine(RuleBasedStateMachine):
    """Runs come and end, nodes join and leave, batch after batch."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, CoreNode] = {}
        self.held: list[HeldCores] = []
        self.alone: dict[str, dict[str, str]] = {}
        self.waiting: list[RunRequest] = []
        self.front: tuple[str, ...] = ()
        self.count = 0

    @rule(cores=st.integers(1, 24), labels=_labels)
    def node_joins(self, cores: int, labels: dict[str, str]) -> None:
        self.count += 1
        self.nodes[f"n{self.count}"] = CoreNode(f"n{self.count}", cores, labels)

    @rule(data=st.data())
    def node_leaves(self, data: st.DataObject) -> None:
        if self.nodes:
            name = data.draw(st.sampled_from(sorted(self.nodes)))
            del self.nodes[name]
            self.held = [each for each in self.held if each.node != name]
            self._forget_ended()

    @rule(demand=_demands, priority=st.integers(-2, 2))
    def run_is_submitted(self, demand: CoreDemand, priority: int) -> None:
        self.count += 1
        self.waiting.append(RunRequest(f"job{self.count:04}", self.count - 3 * priority, demand))

    @rule(data=st.data())
    def run_ends(self, data: st.DataObject) -> None:
        jobs = sorted({each.job for each in self.held})
        if jobs:
            job = data.draw(st.sampled_from(jobs))
            self.held = [each for each in self.held if each.job != job]
            self._forget_ended()

    @rule()
    def cores_are_allocated(self) -> None:
        pool = list(self.nodes.values())
        found = allocate(pool, self.waiting, held=self.held, exclusive=self.alone)
        check(pool, self.waiting, [], Allocation(found.placed, found.waiting))
        demands = {each.job: each.demand for each in self.waiting}
        for job, slices in found.placed.items():
            for name, labels in self.alone.items():
                blocked = {node.name for node in pool if labels.items() <= node.labels.items()}
                assert not blocked & {each.node for each in slices}, f"{name} runs alone"
            self.held += [HeldCores(job, each.node, each.cores) for each in slices]
            if demands[job].share == "exclusive":
                self.alone[job] = dict(demands[job].labels)
        self.waiting = [each for each in self.waiting if each.job not in found.placed]

    @invariant()
    def no_core_is_used_twice(self) -> None:
        used: Counter[str] = Counter()
        for each in self.held:
            used[each.node] += each.cores
        assert all(cores <= self.nodes[name].cores for name, cores in used.items())

    def _forget_ended(self) -> None:
        jobs = {each.job for each in self.held}
        self.alone = {job: labels for job, labels in self.alone.items() if job in jobs}


TestAllocator = AllocatorMachine.TestCase
TestAllocator.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)
