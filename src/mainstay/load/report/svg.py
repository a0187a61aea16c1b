"""The geometry of charts: where each element of an SVG drawing lies. The markup is in `templates/charts.html`. Colours
are classes of `load.css`, so they follow light and dark.

The legend is text outside the drawing, and labels have more room than they need: both can grow on a small screen, where
the drawing itself shrinks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from .axes import ChartAxis

#: size of a drawing in its own units; the page scales it
WIDTH, HEIGHT = 640, 250
#: room around the plot: above for the labels of marks, below and left for those of the axes
_TOP, _BOTTOM, _LEFT = 22, 30, 64
#: width of a letter on a small screen
_LETTER = 11.5
#: height of a line of text
_LINE = 20

Value = tuple[float, float | None]


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A curve. A value of None is a gap in it."""

    name: str
    look: str
    """its class in the style sheet: colour and dashes"""
    values: Sequence[Value]
    filled: bool = False
    dots: bool = False
    """draw only the values: nothing is known between them"""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A bar: from `low` to `high` on the x axis, and its height."""

    low: float
    high: float
    value: float


class ChartMark(msgspec.Struct, frozen=True, kw_only=True):
    """A value with a name: a limit across the plot, or a percentile on the x axis."""

    name: str
    value: float
    look: str = "limit"


class Stroke(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a curve without gaps: a path, with the area below it if it is filled, or single dots."""

    look: str
    path: str = ""
    area: str = ""
    dots: Sequence[tuple[str, str]] = ()


class Label(NamedTuple):
    """Text in a drawing."""

    text: str
    x: str
    y: str
    anchor: str


class ChartDrawing(msgspec.Struct, kw_only=True):
    """A chart with each element at its place, as the template writes it."""

    left: int = _LEFT
    bottom: int
    grid: list[str]
    """y of the lines across the plot"""
    bars: list[tuple[str, str, str, str]]
    """x, y, width, height"""
    strokes: list[Stroke]
    rules: list[tuple[str, str]] = []
    """limits and marks: class and path"""
    labels: list[Label] = []
    ticks: list[str] = []
    """x of the ticks below the plot"""
    tips: str
    """JSON: where the pointer is, and what the tooltip says there"""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a chart, and how its axes are labelled."""

    title: str
    about: str
    """description for screen readers"""
    x: ChartAxis
    y: ChartAxis
    x_text: Callable[[float], str]
    y_text: Callable[[float], str]
    lines: Sequence[Curve] = ()
    bars: Sequence[Bar] = ()
    bar_look: str = "c1"
    limits: Sequence[ChartMark] = ()
    """lines across the plot"""
    marks: Sequence[ChartMark] = ()
    """upright lines"""
    x_ticks: Sequence[float] | None = None
    y_ticks: Sequence[float] | None = None
    tips: Sequence[tuple[float, str]] = ()
    """place on the x axis -> tooltip"""
    height: int = HEIGHT
    width: int = WIDTH

    def drawing(self) -> ChartDrawing:
        """Lay the chart out."""
        return _Layout(self).drawing()


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A chart of a page, by a name of its own in that page."""

    ident: str
    chart: Chart
    tall: Chart | None = None
    """the same chart with a logarithmic scale; the reader can switch between the two"""
    log: bool = False
    """show the logarithmic scale first"""


class _Layout:
    """Places the elements of a chart."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._bottom = chart.height - _BOTTOM

    def drawing(self) -> ChartDrawing:
        chart = self._chart
        y_ticks = chart.y.ticks(6) if chart.y_ticks is None else chart.y_ticks
        tips = [[round(self._x(at), 1), text] for at, text in chart.tips]
        drawing = ChartDrawing(
            bottom=self._bottom,
            grid=[_n(self._y(value)) for value in y_ticks],
            bars=[self._bar(one) for one in chart.bars],
            strokes=[stroke for line in chart.lines for stroke in self._strokes(line)],
            tips=json.dumps(tips, ensure_ascii=False) if tips else "",
        )
        self._add_limits(drawing)
        self._add_marks(drawing)
        drawing.labels += [_label(chart.y_text(one), _LEFT - 8, self._y(one) + 5, "end") for one in y_ticks]
        self._add_ticks(drawing)
        return drawing

    def _x(self, value: float) -> float:
        return _LEFT + self._chart.x.place(value) * (self._chart.width - _LEFT)

    def _y(self, value: float) -> float:
        return self._bottom - self._chart.y.place(value) * (self._bottom - _TOP)

    def _bar(self, bar: Bar) -> tuple[str, str, str, str]:
        left, right = self._x(bar.low), self._x(bar.high)
        # a value above zero is visible, however small it is
        top = min(self._y(bar.value), self._bottom - 1.5)
        width = max(1.0, right - left - 1)
        return _n(left), _n(top), _n(width), _n(self._bottom - top)

    def _strokes(self, line: Curve) -> list[Stroke]:
        strokes = []
        for stretch in _stretches(line.values):
            places = [(_n(self._x(x)), _n(self._y(y))) for x, y in stretch]
            if line.dots or len(places) == 1:  # a path of one point would be invisible
                strokes.append(Stroke(look=line.look, dots=places))
                continue
            path = "M" + "L".join(f"{x} {y}" for x, y in places)
            area = f"{path}L{places[-1][0]} {self._bottom}L{places[0][0]} {self._bottom}Z" if line.filled else ""
            strokes.append(Stroke(look=line.look, path=path, area=area))
        return strokes

    def _add_limits(self, drawing: ChartDrawing) -> None:
        """Lines across, labelled where there is room."""
        last = math.inf
        for mark in sorted(self._chart.limits, key=lambda one: one.value):
            y = self._y(mark.value)
            drawing.rules.append((mark.look, f"M{_LEFT} {_n(y)}H{self._chart.width}"))
            if last - y > _LINE:
                drawing.labels.append(_label(mark.name, self._chart.width, y - 5, "end"))
                last = y

    def _add_marks(self, drawing: ChartDrawing) -> None:
        marks = sorted(self._chart.marks, key=lambda one: one.value)
        drawing.rules += [(one.look, f"M{_n(self._x(one.value))} {_TOP}V{self._bottom}") for one in marks]
        drawing.labels += self._row([(self._x(one.value), one.name) for one in marks], _TOP - 7)

    def _add_ticks(self, drawing: ChartDrawing) -> None:
        chart = self._chart
        values = chart.x.ticks() if chart.x_ticks is None else chart.x_ticks
        drawing.ticks = [_n(self._x(value)) for value in values]
        drawing.labels += self._row([(self._x(value), chart.x_text(value)) for value in values], self._bottom + 22)

    def _row(self, texts: Sequence[tuple[float, str]], y: float) -> list[Label]:
        """Labels side by side, within the drawing. A label that would overlap the one before it is left out."""
        labels, taken = [], 0.0
        for x, text in texts:
            width = len(text) * _LETTER
            fits = x + width / 2 <= self._chart.width
            left, right, anchor = (x - width / 2, x + width / 2, "middle") if fits else (x - width, x, "end")
            if left >= taken:
                labels.append(_label(text, x, y, anchor))
                taken = right + _LETTER
        return labels


def _label(text: str, x: float, y: float, anchor: str) -> Label:
    return Label(text, _n(x), _n(y), anchor)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _stretches(values: Sequence[Value]) -> list[list[tuple[float, float]]]:
    """The parts of a curve between its gaps."""
    stretches: list[list[tuple[float, float]]] = [[]]
    for x, y in values:
        if y is not None:
            stretches[-1].append((x, y))
        elif stretches[-1]:
            stretches.append([])
    return [stretch for stretch in stretches if stretch]
