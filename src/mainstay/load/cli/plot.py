"""Latency over time, drawn in a few lines of a terminal: dots on a logarithmic scale, the higher percentile above."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from ...clock import duration_text
from ..report.words import time_text

#: bits of a braille character by row and column of its dots
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BRAILLE = 0x2800
_LABEL = 8
#: steps of the scale: the bounds move rarely, and are numbers that people read easily
_STEPS = (1.0, 2.0, 5.0)
#: a run that has just begun is not spread over the whole width
_SHORTEST_S = 10.0
LOW, HIGH = "cyan", "yellow"


class Slice(NamedTuple):
    """A stretch of the run; what is drawn of it."""

    at_s: float
    width_s: float
    p50: float
    p99: float


def plot(slices: Sequence[Slice], width: int, height: int, *, until_s: float, plain: bool = False) -> list[Text]:
    """So many lines, none longer than the width; the last one is the axis of time.

    `plain`: for terminals that have no braille characters.
    """
    columns, rows = width - _LABEL - 1, height - 1
    if columns < 4 or rows < 2 or not slices:
        return [Text("nothing has ended yet", style="dim")][:height]
    low, high = _bounds(slices)
    size = (1, 1) if plain else (2, 4)
    canvas = _Canvas(columns, rows, size, low=low, high=high, until_s=max(until_s, _SHORTEST_S))
    for each in slices:
        canvas.draw(each.at_s, each.width_s, each.p50, 0)
    for each in slices:
        canvas.draw(each.at_s, each.width_s, each.p99, 1)
    labels = _labels(low, high, rows)
    lines = []
    for row in range(rows):
        edge = "|" if plain else "┤" if row in labels else "│"
        line = Text().append(f"{labels.get(row, ''):>{_LABEL}}{edge}", style="dim")
        _cells(line, canvas, row, columns, plain=plain)
        lines.append(line)
    ends = duration_text(round(max(until_s, _SHORTEST_S)))
    lines.append(Text(f"{'':>{_LABEL}} 0s{ends:>{columns - 2}}", style="dim"))
    return lines


def _cells(line: Text, canvas: _Canvas, row: int, columns: int, *, plain: bool) -> None:
    """Neighbours of one colour together: a style costs more than a character."""
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
    """Dots by cell, for two lines that are drawn over each other."""

    def __init__(
        self, columns: int, rows: int, size: tuple[int, int], *, low: float, high: float, until_s: float
    ) -> None:
        self._size = size
        self._across, self._down = columns * size[0], rows * size[1]
        self._low, self._scale = math.log(low), (self._down - 1) / (math.log(high) - math.log(low))
        self._per_s = self._across / until_s
        self._dots: tuple[dict[tuple[int, int], int], ...] = ({}, {})

    def draw(self, at_s: float, width_s: float, value: float, line: int) -> None:
        y = round((math.log(max(value, 1e-9)) - self._low) * self._scale)
        y = self._down - 1 - min(self._down - 1, max(0, y))
        first = min(self._across - 1, int(at_s * self._per_s))
        last = min(self._across - 1, max(first, math.ceil((at_s + width_s) * self._per_s) - 1))
        dots, (wide, tall) = self._dots[line], self._size
        for x in range(first, last + 1):
            cell = (y // tall, x // wide)
            dots[cell] = dots.get(cell, 0) | _DOTS[y % tall][x % wide]

    def marks(self, line: int, row: int, column: int) -> int:
        return self._dots[line].get((row, column), 0)


def _bounds(slices: Sequence[Slice]) -> tuple[float, float]:
    low = _step_below(min(each.p50 for each in slices))
    high = _step_above(max(each.p99 for each in slices))
    return low, high if high > low else low * 10


def _step_below(value: float) -> float:
    value = max(value, 1e-7)
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in _STEPS if step * power <= value * 1.0000001) if power <= value else power / 2


def _step_above(value: float) -> float:
    value = max(value, 1e-7)
    power = 10.0 ** math.floor(math.log10(value))
    return min(step * power for step in (*_STEPS, 10.0) if step * power >= value * 0.9999999)


def _labels(low: float, high: float, rows: int) -> dict[int, str]:
    """What stands beside which row: the bounds, and the tens and steps between them that have room."""
    scale = (rows - 1) / (math.log(high) - math.log(low))
    found = {rows - 1: time_text(low), 0: time_text(high)}
    power = math.floor(math.log10(low))
    steps = [step * 10.0**n for n in range(power, power + 10) for step in _STEPS]
    # tens first: they are what a scale is read by
    for value in sorted(steps, key=lambda each: (abs(math.log10(each) - round(math.log10(each))) > 1e-9, each)):
        row = rows - 1 - round((math.log(value) - math.log(low)) * scale)
        if 0 < row < rows - 1 and not any(near in found for near in (row - 1, row, row + 1)):
            found[row] = time_text(value)
    return found
