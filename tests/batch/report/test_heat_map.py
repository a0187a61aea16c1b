"""The map of parameter sets by outcome: its axes, its facets, its bins."""

from __future__ import annotations

import random

from mainstay.batch import grid
from mainstay.batch.report.heat_map import Cell, HeatMap, heat_map, params_text
from mainstay.batch.report.model import SetOutcome
from tests.batch.report.reports import outcomes


def shares(found: HeatMap, facet: int = 0) -> list[list[float | None]]:
    return [[None if cell is None else cell.share for cell in row] for row in found.facets[facet].rows]


def test_the_parameters_with_the_most_values_are_the_axes_and_the_constant_ones_are_told_apart() -> None:
    found = heat_map(outcomes(grid(n=[1, 2], beta=[0.3, 0.1, 0.2], host=["box"])), columns=40, rows=40, facets=12)

    assert (found.x.name, found.x.labels) == ("beta", ["0.1", "0.2", "0.3"])
    assert (found.y.name, found.y.labels) == ("n", ["1", "2"])
    assert (found.fixed, found.averaged) == ({"host": "box"}, ())


def test_a_cell_is_the_share_of_its_own_set() -> None:
    made = [
        SetOutcome(params=params, intact=3 if params == {"a": 2, "b": 1} else 4, units=4)
        for params in grid(a=[1, 2, 3], b=[1, 2])
    ]

    assert shares(heat_map(made, columns=40, rows=40, facets=12)) == [[1.0, 0.75, 1.0], [1.0, 1.0, 1.0]]


def test_a_third_parameter_makes_facets_while_they_are_few_and_is_averaged_over_otherwise() -> None:
    sets = grid(a=[1, 2, 3], b=[1, 2, 3], mode=["cold", "hot"])
    made = [SetOutcome(params=one, intact=10 * (one["mode"] == "hot"), units=10) for one in sets]

    apart = heat_map(made, columns=40, rows=40, facets=2)
    together = heat_map(made, columns=40, rows=40, facets=1)

    assert [facet.title for facet in apart.facets] == ["mode=cold", "mode=hot"]
    assert (shares(apart, 0)[0], shares(apart, 1)[0]) == ([0.0] * 3, [1.0] * 3)
    assert (len(together.facets), together.averaged, shares(together)[0]) == (1, ("mode",), [0.5] * 3)


def test_thousands_of_sets_are_binned_and_none_is_lost() -> None:
    rng = random.Random(7)
    made = outcomes([{"beta": rng.random(), "gamma": rng.random()} for _ in range(5000)])

    found = heat_map(made, columns=20, rows=10, facets=12)

    assert (len(found.x.labels), len(found.y.labels), found.x.binned) == (20, 10, True)
    cells = [cell for row in found.facets[0].rows for cell in row if cell is not None]
    assert sum(cell.sets for cell in cells) == 5000
    assert all("…" in label for label in found.x.labels)


def test_one_parameter_makes_one_row_and_none_at_all_one_cell() -> None:
    row = heat_map(outcomes(grid(a=[1, 2, 3])), columns=40, rows=40, facets=12)
    cell = heat_map(outcomes([{}]), columns=40, rows=40, facets=12)

    assert (row.x.name, row.y.name, shares(row)) == ("a", "", [[1.0, 1.0, 1.0]])
    assert (cell.x.name, shares(cell)) == ("", [[1.0]])


def test_a_place_that_no_set_falls_on_is_empty_and_a_parameter_may_be_left_out() -> None:
    made = outcomes([{"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3}])

    found = heat_map(made, columns=40, rows=40, facets=12)

    assert (found.x.labels, found.y.labels) == (["1", "2", "3"], ["1", "2", "none"])
    assert shares(found) == [[1.0, None, None], [None, 1.0, None], [None, None, 1.0]]


def test_only_what_is_whole_counts_as_all_of_it() -> None:
    assert Cell(intact=999_999, units=1_000_000, sets=1).level == "most"
    assert Cell(intact=1, units=1_000_000, sets=1).level == "few"


def test_values_of_all_kinds_are_told_shortly() -> None:
    assert params_text({"a": 0.1 + 0.2, "b": "x" * 50, "c": {"d": [1]}}) == f'a=0.3, b={"x" * 39}…, c={{"d":[1]}}'
    assert params_text({}) == "no parameters"
