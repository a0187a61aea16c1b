"""A heat map of parameter sets by outcome: two of their parameters as axes, a share of intact units in each cell.

The axes are the two parameters with the most values. Other varying parameters make facets if they are few; otherwise
cells are averages over them. Axes with too many values are binned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from .model import Level, SetOutcome, level_of

_LONGEST = 40


class Cell(msgspec.Struct):
    """The sets at one place of the map."""

    intact: int = 0
    units: int = 0
    sets: int = 0

    @property
    def share(self) -> float:
        return self.intact / self.units if self.units else 0.0

    @property
    def level(self) -> Level:
        return level_of(self.intact, self.units)


class MapAxis(msgspec.Struct, frozen=True):
    """A parameter and its values in order, or ranges of them."""

    name: str
    labels: list[str]
    binned: bool = False


class Facet(msgspec.Struct, frozen=True):
    """One map: a row of cells for each label of the y axis."""

    title: str
    rows: list[list[Cell | None]]
    """None: no set is at this place"""


class HeatMap(msgspec.Struct, frozen=True, kw_only=True):
    """The sets of a batch by outcome."""

    x: MapAxis
    y: MapAxis
    """its name is empty if only one parameter varies"""
    facets: list[Facet]
    fixed: dict[str, str]
    """parameters with the same value in all sets"""
    averaged: tuple[str, ...] = ()
    """varying parameters that are neither an axis nor a facet: a cell is over all their values"""

    @property
    def notes(self) -> list[str]:
        """What the axes do not show, in words."""
        notes = []
        if self.fixed:
            notes.append("the same in all sets: " + ", ".join(f"{name}={value}" for name, value in self.fixed.items()))
        if self.averaged:
            notes.append(f"a cell is over all values of {', '.join(self.averaged)}")
        if binned := [axis.name for axis in (self.x, self.y) if axis.binned]:
            notes.append(f"ranges of values: {' and '.join(binned)}")
        return notes


def heat_map(outcomes: Sequence[SetOutcome], *, columns: int, rows: int, facets: int) -> HeatMap:
    """The map of the sets, with limits for columns, rows and facets.

    >>> from mainstay.batch import grid
    >>> sets = grid(a=[1], b=[1, 2, 3], c=["x", "y"])
    >>> outcomes = [SetOutcome(params=one, intact=2 * (one["b"] < 3), units=2) for one in sets]
    >>> found = heat_map(outcomes, columns=10, rows=10, facets=4)
    >>> found.x, found.fixed
    (MapAxis(name='b', labels=['1', '2', '3'], binned=False), {'a': '1'})
    >>> found.y
    MapAxis(name='c', labels=['x', 'y'], binned=False)
    >>> [[cell.level for cell in row] for row in found.facets[0].rows]
    [['all', 'all', 'none'], ['all', 'all', 'none']]
    """
    values = _values(outcomes)
    varying = sorted((name for name, found in values.items() if len(found) > 1), key=lambda name: -len(values[name]))
    x, y, rest = [*varying, "", ""][0], [*varying, "", ""][1], varying[2:]
    x_axis, x_places = _axis(x, values.get(x, []), columns)
    y_axis, y_places = _axis(y, values.get(y, []), rows)
    split = rest if math.prod(len(values[name]) for name in rest) <= facets else []
    grids: dict[str, list[list[Cell | None]]] = {}
    for one in outcomes:
        title = ", ".join(f"{name}={shown(one.params.get(name))}" for name in split)
        grid = grids.get(title)
        if grid is None:
            grid = grids[title] = [[None] * len(x_axis.labels) for _ in y_axis.labels]
        row = grid[y_places[_key(one.params.get(y))] if y else 0]
        place = x_places[_key(one.params.get(x))] if x else 0
        cell = row[place]
        if cell is None:
            cell = row[place] = Cell()
        cell.intact += one.intact
        cell.units += one.units
        cell.sets += 1
    return HeatMap(
        x=x_axis,
        y=y_axis,
        facets=[Facet(title, grid) for title, grid in grids.items()],
        fixed={name: shown(found[0]) for name, found in values.items() if len(found) == 1},
        averaged=() if split else tuple(rest),
    )


def shown(value: Any) -> str:
    """A short text for the value of a parameter.

    >>> shown(0.30000000000000004), shown("cold"), shown([1, 2]), shown(None)
    ('0.3', 'cold', '[1,2]', 'none')
    """
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def params_text(params: dict[str, Any]) -> str:
    """A parameter set in one line."""
    return ", ".join(f"{name}={shown(value)}" for name, value in params.items()) or "no parameters"


def _key(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def _values(outcomes: Sequence[SetOutcome]) -> dict[str, list[Any]]:
    """The values of each parameter: numbers sorted, others in the order of the sets."""
    values_of: dict[str, dict[bytes, Any]] = {}
    for name in dict.fromkeys(name for one in outcomes for name in one.params):
        values_of[name] = {_key(one.params.get(name)): one.params.get(name) for one in outcomes}
    return {name: _sorted(list(values.values())) for name, values in values_of.items()}


def _sorted(values: list[Any]) -> list[Any]:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return sorted(values) if numbers else values


def _axis(name: str, values: Sequence[Any], most: int) -> tuple[MapAxis, dict[bytes, int]]:
    """The axis, and the place of each value on it. Neighbours share a place if there are too many."""
    if not name:
        return MapAxis("", [""]), {}
    n = min(len(values), max(1, most))
    places = {_key(value): place * n // len(values) for place, value in enumerate(values)}
    bins: list[list[Any]] = [[] for _ in range(n)]
    for place, value in enumerate(values):
        bins[place * n // len(values)].append(value)
    labels = [shown(some[0]) if len(some) == 1 else f"{_shortly(some[0])}…{_shortly(some[-1])}" for some in bins]
    return MapAxis(name, labels, binned=n < len(values)), places


def _shortly(value: Any) -> str:
    """An end of a range, with few digits."""
    return f"{value:.3g}" if isinstance(value, float) else shown(value)
