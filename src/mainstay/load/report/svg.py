"""Charts as SVG inside a page: no library, no script. Colours are classes of `load.css`, so they follow light and dark.

The legend is text outside of the drawing, and names of values have more room than they need: both can grow on a small
screen, where the drawing itself shrinks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from html import escape

import msgspec

from .axes import Axis

#: of the drawing; a page scales it
WIDTH, HEIGHT = 640, 250
#: room around the plot: above for the names of marks, below and left for those of values
_TOP, _BOTTOM, _LEFT = 22, 30, 64
#: of a letter, on a small screen
_LETTER = 11.5
#: height of a line of text
_LINE = 20

Value = tuple[float, float | None]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A curve; a value of None is a gap in it."""

    name: str
    look: str
    """its class in the style sheet: colour and dashes"""
    values: Sequence[Value]
    filled: bool = False
    dots: bool = False
    """only the values, because nothing is known between them"""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """From and to on the axis below, and its height."""

    low: float
    high: float
    value: float


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A value with a name: a limit across the plot, or a percentile that stands in it."""

    name: str
    value: float
    look: str = "limit"


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn, and how its axes are written."""

    title: str
    about: str
    """for those who do not see it"""
    x: Axis
    y: Axis
    x_text: Callable[[float], str]
    y_text: Callable[[float], str]
    lines: Sequence[Line] = ()
    bars: Sequence[Bar] = ()
    bar_look: str = "c1"
    limits: Sequence[Mark] = ()
    """across"""
    marks: Sequence[Mark] = ()
    """upright"""
    x_ticks: Sequence[float] | None = None
    y_ticks: Sequence[float] | None = None
    tips: Sequence[tuple[float, str]] = ()
    """place on the axis below -> what is said when a pointer is there"""
    height: int = HEIGHT
    width: int = WIDTH


def drawing(chart: Chart, ident: str) -> str:
    """The chart as an SVG element. `ident` is a name of its own within the page."""
    frame = _Frame(chart)
    x_ticks = chart.x.ticks() if chart.x_ticks is None else chart.x_ticks
    y_ticks = chart.y.ticks(6) if chart.y_ticks is None else chart.y_ticks
    parts = [
        *(_y_tick(frame, one) for one in y_ticks),
        *(_bar(frame, one) for one in chart.bars),
        *(_line(frame, one) for one in chart.lines),
        *_limits(frame),
        *_marks(frame),
        *(_y_name(frame, one) for one in y_ticks),
        f'<line class="base" x1="{_LEFT}" x2="{chart.width}" y1="{frame.bottom}" y2="{frame.bottom}"/>',
        *_x_names(frame, x_ticks),
    ]
    tips = ""
    if chart.tips:
        told = json.dumps([[round(frame.x(at), 1), text] for at, text in chart.tips], ensure_ascii=False)
        tips = f' data-tips="{escape(told)}"'
    return (
        f'<svg viewBox="0 0 {chart.width} {chart.height}" role="img" aria-labelledby="{ident}-t {ident}-d"{tips}>\n'
        f'<title id="{ident}-t">{escape(chart.title)}</title>\n<desc id="{ident}-d">{escape(chart.about)}</desc>\n'
        + "\n".join(parts)
        + "\n</svg>"
    )


def legend(lines: Sequence[Line]) -> str:
    """Which line is which, by colour and dashes."""
    made = "".join(
        f'<span><svg viewBox="0 0 28 10" aria-hidden="true">{_key(look, dots=dots)}</svg>{escape(name)}</span> '
        for look, name, dots in dict.fromkeys((one.look, one.name, one.dots) for one in lines)
    )
    return f'<p class="legend">{made.strip()}</p>'


def _key(look: str, *, dots: bool) -> str:
    return f'<circle class="{look} dot" cx="14" cy="5" r="4"/>' if dots else f'<path class="{look}" d="M0 5H28"/>'


class _Frame:
    """Where the plot is within the drawing."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.top = _TOP
        self.bottom = chart.height - _BOTTOM

    def x(self, value: float) -> float:
        return _LEFT + self.chart.x.place(value) * (self.chart.width - _LEFT)

    def y(self, value: float) -> float:
        return self.bottom - self.chart.y.place(value) * (self.bottom - self.top)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _y_tick(frame: _Frame, value: float) -> str:
    y = _n(frame.y(value))
    return f'<line class="grid" x1="{_LEFT}" x2="{frame.chart.width}" y1="{y}" y2="{y}"/>'


def _y_name(frame: _Frame, value: float) -> str:
    y = frame.y(value)
    return _name(frame.chart.y_text(value), _LEFT - 8, y + 5, "end")


def _x_names(frame: _Frame, ticks: Sequence[float]) -> list[str]:
    """A name that would lie on the one before it is left out."""
    made, taken = [], 0.0
    for value in ticks:
        x, name = frame.x(value), frame.chart.x_text(value)
        made.append(f'<line class="base" x1="{_n(x)}" x2="{_n(x)}" y1="{frame.bottom}" y2="{frame.bottom + 5}"/>')
        anchor, left, right = _placed(frame, x, name)
        if left >= taken:
            made.append(_name(name, x, frame.bottom + 22, anchor))
            taken = right + _LETTER
    return made


def _placed(frame: _Frame, x: float, name: str) -> tuple[str, float, float]:
    """How a name is held at a place so that it stays within the drawing; and from where to where it goes."""
    width = len(name) * _LETTER
    if x + width / 2 > frame.chart.width:
        return "end", x - width, x
    return "middle", x - width / 2, x + width / 2


def _name(name: str, x: float, y: float, anchor: str) -> str:
    return f'<text class="name" text-anchor="{anchor}" x="{_n(x)}" y="{_n(y)}">{escape(name)}</text>'


def _line(frame: _Frame, line: Line) -> str:
    parts = []
    for run in _runs(line.values):
        places = [(frame.x(x), frame.y(y)) for x, y in run]
        if line.dots or len(places) == 1:  # a line of one value would not be seen
            parts += [f'<circle class="{line.look} dot" cx="{_n(x)}" cy="{_n(y)}" r="3.5"/>' for x, y in places]
            continue
        path = "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in places)
        if line.filled:
            closed = f"{path}L{_n(places[-1][0])} {frame.bottom}L{_n(places[0][0])} {frame.bottom}Z"
            parts.append(f'<path class="{line.look} area" d="{closed}"/>')
        parts.append(f'<path class="{line.look}" d="{path}"/>')
    return "\n".join(parts)


def _runs(values: Sequence[Value]) -> list[list[tuple[float, float]]]:
    """The stretches between the gaps."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in values:
        if y is not None:
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _bar(frame: _Frame, bar: Bar) -> str:
    left, right, top = frame.x(bar.low), frame.x(bar.high), frame.y(bar.value)
    # what is there is seen, however little it is
    top = min(top, frame.bottom - 1.5)
    width = max(1.0, right - left - 1)
    return (
        f'<rect class="{frame.chart.bar_look} bar" x="{_n(left)}" y="{_n(top)}" width="{_n(width)}" '
        f'height="{_n(frame.bottom - top)}"/>'
    )


def _limits(frame: _Frame) -> list[str]:
    """Lines across, with their names on them where there is room."""
    made, taken = [], math.inf
    for mark in sorted(frame.chart.limits, key=lambda one: one.value):
        y = frame.y(mark.value)
        made.append(f'<path class="{mark.look}" d="M{_LEFT} {_n(y)}H{frame.chart.width}"/>')
        if taken - y > _LINE:
            made.append(_name(mark.name, frame.chart.width, y - 5, "end"))
            taken = y
    return made


def _marks(frame: _Frame) -> list[str]:
    """Upright marks, with their names above where there is room."""
    made, taken = [], 0.0
    for mark in sorted(frame.chart.marks, key=lambda one: one.value):
        x = frame.x(mark.value)
        made.append(f'<path class="{mark.look}" d="M{_n(x)} {frame.top}V{frame.bottom}"/>')
        anchor, left, right = _placed(frame, x, mark.name)
        if left >= taken:
            made.append(_name(mark.name, x, frame.top - 7, anchor))
            taken = right + _LETTER
    return made
