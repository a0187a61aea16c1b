"""The load of a plan is dealt exactly over all processes of all members."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from mainstay.errors import InvalidInput
from mainstay.load.engine.workflow_users import ProcessShare
from mainstay.load.feeders import Feed
from mainstay.load.generators import Generators
from mainstay.load.pace import Arrivals, flat, shares, weighted

fleets = st.lists(st.integers(1, 8), min_size=1, max_size=8)


def numbered(members: list[int]) -> list[tuple[int, int]]:
    """The number of each process and of how many, as the members have them."""
    generators = []
    for at, count in enumerate(members):
        part = Generators(count, print, first=sum(members[:at]), of=sum(members))
        generators += [(process.number, part._of) for process in part._processes]
    return generators


@settings(max_examples=30, deadline=None)
@given(fleets, st.integers(1, 5000), st.integers(1, 500))
def test_users_iterations_arrivals_and_rows_are_those_of_the_plan(members: list[int], total: int, rows: int) -> None:
    dealt = numbered(members)
    assert dealt == [(number, sum(members)) for number in range(sum(members))]

    users = [ProcessShare(number, of, seed=1).of(total) for number, of in dealt]
    assert sum(users) == total
    assert max(users) - min(users) <= 1
    assert users == shares(total, sum(members))

    iterations = [weighted(total, shares(max(total, 1), of))[number] for number, of in dealt]
    assert sum(iterations) == total

    times = sorted(due for number, of in dealt for due in Arrivals(flat(total, 1.0), number, of).times())
    assert times == list(Arrivals(flat(total, 1.0)).times())

    if rows >= sum(members):
        taken = []
        for number, of in dealt:
            hand = Feed(list(range(rows)), share="split").dealt(process=number, processes=of)
            own = shares(rows, of)[number]
            taken += [hand(0) for _ in range(own)]
        assert sorted(taken) == list(range(rows))


def test_a_part_that_is_not_in_the_whole_is_refused() -> None:
    with pytest.raises(InvalidInput, match="processes 3 to 4 are not among 0 to 3"):
        Generators(2, print, first=3, of=4)
