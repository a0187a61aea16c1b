"""Latency over time in a few lines of a terminal: dots on a logarithmic scale, the higher percentile above."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from ...clock import duration_text
from ..report.axes import ChartAxis, axis_over
from ..report.words import time_text

#: bits of a braille character by row and column of its dots
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BRAILLE = 0x2800
_LABEL = 8
#: a run that has just begun does not fill the whole width
_SHORTEST_S = 10.0
#: the clock may report no time at all, which has no place on a logarithmic scale
_FASTEST_S = 1e-7
LOW, HIGH = "cyan", "yellow"


class Slice(NamedTuple):
    """A stretch of the run, as it is drawn."""

    at_s: float
    width_s: float
    p50: float
    p99: float


def plot(slices: Sequence[Slice], width: int, height: int, *, until_s: float, plain: bool = False) -> list[Text]:
    """At most `height` lines, none longer than the width; the last one is the time axis.

    `plain`: for terminals that have no braille characters.
    """
    columns, rows = width - _LABEL - 1, height - 1
    axis = axis_over([max(value, _FASTEST_S) for each in slices for value in (each.p50, each.p99)], log=True)
    if columns < 4 or rows < 2 or axis is None:
        return [Text("no request has ended yet", style="dim")][:height]
    until_s = max(until_s, _SHORTEST_S)
    canvas = _Canvas(columns, rows, (1, 1) if plain else (2, 4), axis, until_s)
    for each in slices:
        canvas.draw(each, each.p50, 0)
        canvas.draw(each, each.p99, 1)
    labels = _labels(axis, rows)
    lines = []
    for row in range(rows):
        edge = "|" if plain else "┤" if row in labels else "│"
        line = Text().append(f"{labels.get(row, ''):>{_LABEL}}{edge}", style="dim")
        _cells(line, canvas, row, columns, plain=plain)
        lines.append(line)
    lines.append(Text(f"{'':>{_LABEL}} 0s{duration_text(round(until_s)):>{columns - 2}}", style="dim"))
    return lines


def _cells(line: Text, canvas: _Canvas, row: int, columns: int, *, plain: bool) -> None:
    """Append neighbours of one colour together: a style costs more than a character."""
    run, colour = "", ""
    for column in range(columns):
        low, high = (canvas.marks(0, row, column), canvas.marks(1, row, column))
        now = HIGH if high else LOW if low else colour
        if now != colour:
            line.append(run, style=colour)
            run, colour = "", now
        if plain:
            run += "x" if high else "o" if low else " "
        else:
            run += chr(_BRAILLE + (low | high)) if low | high else " "
    line.append(run, style=colour)


class _Canvas:
    """Dots by cell, for two curves that are drawn over each other."""

    def __init__(self, columns: int, rows: int, size: tuple[int, int], axis: ChartAxis, until_s: float) -> None:
        self._size = size
        self._across, self._down = columns * size[0], rows * size[1]
        self._axis = axis
        self._per_s = self._across / until_s
        self._dots: tuple[dict[tuple[int, int], int], ...] = ({}, {})

    def draw(self, part: Slice, value: float, curve: int) -> None:
        y = self._down - 1 - round(self._axis.place(value) * (self._down - 1))
        first = min(self._across - 1, int(part.at_s * self._per_s))
        last = min(self._across - 1, max(first, math.ceil((part.at_s + part.width_s) * self._per_s) - 1))
        dots, (wide, tall) = self._dots[curve], self._size
        for x in range(first, last + 1):
            cell = (y // tall, x // wide)
            dots[cell] = dots.get(cell, 0) | _DOTS[y % tall][x % wide]

    def marks(self, curve: int, row: int, column: int) -> int:
        return self._dots[curve].get((row, column), 0)


def _labels(axis: ChartAxis, rows: int) -> dict[int, str]:
    """The labels by row: the bounds, and powers of ten and steps between them where there is room."""
    labels = {rows - 1: time_text(axis.low), 0: time_text(axis.high)}
    power = math.floor(math.log10(axis.low))
    powers = range(power, power + 10)
    # powers of ten first: they make a scale easy to read
    for value in [10.0**n for n in powers] + [step * 10.0**n for n in powers for step in (2.0, 5.0)]:
        row = rows - 1 - round(axis.place(value) * (rows - 1))
        if 0 < row < rows - 1 and not any(near in labels for near in (row - 1, row, row + 1)):
            labels[row] = time_text(value)
    return labels
