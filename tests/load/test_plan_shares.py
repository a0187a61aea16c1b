"""The shares of processes in a plan, and what is left of them, add up."""

from __future__ import annotations

from hypothesis import given, strategies as st

from mainstay.load.pace import flat
from mainstay.load.plan import WorkflowPlan
from mainstay.load.plan_shares import done_by_process, iterations_by_process


def plan_of(iterations: int | None, users: int) -> WorkflowPlan:
    return WorkflowPlan(name="Shop", model="iterations", users=flat(users, 60.0), iterations=iterations)


slices = st.tuples(st.integers(1, 20), st.integers(0, 20), st.integers(0, 20)).map(
    lambda drawn: (drawn[0] + drawn[1] + drawn[2], range(drawn[1], drawn[1] + drawn[0]))
)


@given(st.integers(1, 10_000_000), st.integers(1, 50), slices, st.floats(0, 1.2))
def test_what_is_left_of_a_slice_is_its_share_without_what_it_began(
    iterations: int, users: int, of: tuple[int, range], part: float
) -> None:
    processes, own = of
    plan = plan_of(iterations, users)
    planned = iterations_by_process(plan, processes)
    ours = [planned[process] for process in own]
    began = int(sum(ours) * part)

    done = done_by_process(plan, began, own, processes)

    assert sum(planned) == iterations
    assert all(0 <= left <= share for left, share in zip(done, ours, strict=True))
    assert sum(done) == min(began, sum(ours))
    if began < sum(ours):
        assert sum(share - left for share, left in zip(ours, done, strict=True)) == sum(ours) - began


@given(st.integers(1, 10_000), st.lists(st.floats(0, 0.5), max_size=5), slices)
def test_a_slice_that_is_replaced_again_and_again_begins_its_share_once(
    iterations: int, parts: list[float], of: tuple[int, range]
) -> None:
    processes, own = of
    plan = plan_of(iterations, 7)
    share = sum(iterations_by_process(plan, processes)[process] for process in own)
    began = 0
    for part in parts:
        left = share - sum(done_by_process(plan, began, own, processes))
        began += int(left * part)

    left = share - sum(done_by_process(plan, began, own, processes))
    assert began + left == share


@given(st.integers(0, 1000), slices)
def test_iterations_of_a_plan_without_a_number_of_them_are_dealt_evenly(began: int, of: tuple[int, range]) -> None:
    processes, own = of

    done = done_by_process(plan_of(None, 7), began, own, processes)

    assert sum(done) == began
    assert max(done) - min(done) <= 1
