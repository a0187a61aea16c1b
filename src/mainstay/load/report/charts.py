"""The charts of a run, from its summary. None if there is nothing to draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

from ...clock import duration_text
from ..stats.model import Latency, Percentiles, Point
from .axes import ChartAxis, axis_over
from .svg import Bar, Chart, ChartMark, Curve, Value
from .words import counted, digits, one_line, rate_text, share_text, time_text

Buckets = Sequence[tuple[float, float, int]]
#: from the call to its response; or, in an open model, from the moment it was due
Which = Literal["service", "response"]

#: the curves of a latency chart, and their look
PERCENTILES = {"p50": "c1", "p90": "c2", "p95": "c3", "p99": "c4", "max": "c5"}
#: bars of a distribution
_BINS = 56
#: percentiles that a summary keeps, by 1 / (1 - q)
_NAMED = ((2.0, "p50"), (4.0, "p75"), (10.0, "p90"), (20.0, "p95"), (100.0, "p99"), (1000.0, "p999"))
#: height of the chart of a step, smaller than the others
_SMALL = 180


def axis_text(value: float) -> str:
    """A time on an axis, with as few digits as possible.

    >>> axis_text(0.02), axis_text(1.5), axis_text(0.0005)
    ('20 ms', '1.5 s', '500 µs')
    """
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= size * 0.9999:
            return f"{value / size:.6g} {unit}"
    return "0" if value == 0 else f"{value / 1e-9:.3g} ns"


def count_text(value: float) -> str:
    """A number on an axis.

    >>> count_text(2000.0), count_text(0.5), count_text(1500000)
    ('2,000', '0.5', '1.5 M')
    """
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value:,.0f}" if value == int(value) else f"{value:g}"


def whole_ticks(axis: ChartAxis) -> list[float]:
    """Ticks of an axis of counts: whole numbers only.

    >>> whole_ticks(ChartAxis(0.0, 1.0))
    [0.0, 1.0]
    """
    return [one for one in axis.ticks(6) if one == int(one)]


def clock_text(value: float) -> str:
    """A time since the start."""
    return "0" if value == 0 else duration_text(round(value, 1))


def time_axis(points: Sequence[Point]) -> ChartAxis:
    """From the start to the end of the last point."""
    last = points[-1]
    return ChartAxis(0.0, max(last.at_s + last.width_s, 0.1))


def time_chart(x: ChartAxis, *, ticks: int = 6, **fields: Any) -> Chart:
    """A chart over the time of the run; `fields` are those of `Chart`."""
    return Chart(x=x, x_text=clock_text, x_ticks=x.times(ticks), **fields)


def over_time(points: Sequence[Point], value: Callable[[Point], float | None]) -> list[Value]:
    """A value of each point, at the middle of its stretch."""
    return [(one.at_s + one.width_s / 2, value(one)) for one in points]


def _tips(points: Sequence[Point], text: Callable[[Point], str]) -> list[tuple[float, str]]:
    return [(one.at_s + one.width_s / 2, f"{clock_text(one.at_s)}: {text(one)}") for one in points]


def values_of(lines: Iterable[Curve]) -> list[float]:
    """All values of some curves, without the gaps."""
    return [y for line in lines for _, y in line.values if y is not None]


# over time ----------------------------------------------------------------------------------------------


def times_of(one: Point, which: Which) -> Point | Percentiles | None:
    """The percentiles of a stretch: the point itself has those of the service time."""
    return one.response if which == "response" else one


def time_of(one: Point, *, which: Which, name: str) -> float | None:
    """One percentile of a stretch."""
    return getattr(times_of(one, which), name, None)


def latency_chart(
    points: Sequence[Point], *, log: bool, limits: Sequence[ChartMark] = (), which: Which = "service"
) -> Chart | None:
    """Percentiles over time: of the service time, or of the response time of an open model."""
    lines = [
        Curve(name=name, look=look, values=over_time(points, partial(time_of, which=which, name=name)))
        for name, look in PERCENTILES.items()
    ]
    y = axis_over([*values_of(lines), *(one.value for one in limits)], log=log)
    if not values_of(lines) or y is None:
        return None
    highest = max(values_of(lines))
    return time_chart(
        time_axis(points),
        title=f"{which.capitalize()} time over time",
        about=f"Percentiles of the {which} time in each stretch of the run; the highest value is {time_text(highest)}.",
        y=y,
        y_text=axis_text,
        lines=lines,
        limits=limits,
        tips=_tips(points, partial(_times_tip, which=which)),
    )


def _times_tip(one: Point, *, which: Which) -> str:
    return ", ".join(f"{name} {time_text(time_of(one, which=which, name=name))}" for name in PERCENTILES)


def is_spread(points: Sequence[Point], which: Which = "service") -> bool:
    """Whether small values would be lost on a linear axis."""
    values = (time_of(one, which=which, name=name) for one in points for name in ("p50", "max"))
    axis = axis_over(value for value in values if value is not None)
    return axis is not None and axis.log


def rate_chart(points: Sequence[Point], limits: Sequence[ChartMark] = ()) -> Chart | None:
    """Requests, failed ones and dropped arrivals a second."""
    lines = [Curve(name="requests", look="c1", filled=True, values=over_time(points, lambda one: one.rate))]
    if any(one.failed for one in points):
        lines.append(Curve(name="failed", look="c4", filled=True, values=over_time(points, lambda one: one.failed)))
    if any(one.dropped for one in points):
        lines.append(Curve(name="dropped", look="c5", values=over_time(points, lambda one: one.dropped)))
    y = axis_over([*values_of(lines), *(one.value for one in limits)], log=False)
    if not points or y is None:
        return None
    return time_chart(
        time_axis(points),
        title="Requests a second",
        about=f"Requests that ended in each second; at most {rate_text(max(one.rate for one in points))}.",
        y=y,
        y_text=count_text,
        lines=lines,
        limits=limits,
        tips=_tips(points, _rate_tip),
    )


def _rate_tip(one: Point) -> str:
    dropped = f", {digits(one.dropped)} dropped" if one.dropped else ""
    return f"{rate_text(one.rate)}, {digits(one.failed)} failed{dropped}, {counted(one.users, 'user')}"


def users_chart(points: Sequence[Point]) -> Chart | None:
    """Active users."""
    line = Curve(name="users", look="c1", filled=True, values=over_time(points, lambda one: float(one.users)))
    y = axis_over(values_of([line]), log=False)
    if not points or y is None:
        return None
    return time_chart(
        time_axis(points),
        title="Active users",
        about=f"Active users; at most {max(one.users for one in points):,}.",
        y=y,
        y_text=count_text,
        y_ticks=whole_ticks(y),
        lines=[line],
        tips=_tips(points, lambda one: counted(one.users, "user")),
    )


def failed_chart(points: Sequence[Point]) -> Chart | None:
    """The share of failed requests."""
    line = Curve(name="failed", look="c4", filled=True, values=over_time(points, _failed_part))
    y = axis_over(values_of([line]), log=False)
    if y is None or not any(one.failed for one in points):
        return None
    return time_chart(
        time_axis(points),
        title="Failed requests over time",
        about=f"The share of requests that failed; at most {share_text(max(values_of([line])), 100)}.",
        y=y,
        y_text=lambda value: f"{value:g} %",
        lines=[line],
        tips=_tips(points, lambda one: f"{share_text(one.failed, one.rate)}, {rate_text(one.failed)}"),
    )


def _failed_part(one: Point) -> float | None:
    return one.failed / one.rate * 100 if one.rate else None


def step_charts(points: Sequence[Point], limits: dict[str, list[ChartMark]]) -> dict[str, Chart]:
    """One small chart for each step, all to one scale: "workflow.step" -> chart. `limits` names the steps, in order.

    The chart of a step of an open model shows its response time.
    """
    measured = {name for one in points for name in one.by_step}
    names = [name for name in limits if name in measured]
    looks = {"p50": "c1", "p95": "c3", "p99": "c4"}
    kinds: dict[str, Which] = {step: "response" if has_response(points, step) else "service" for step in names}
    lines = {
        step: [
            Curve(name=name, look=look, values=over_time(points, partial(_of_step, step=step, place=place)))
            for place, (name, look) in enumerate(looks.items(), 4 if kinds[step] == "response" else 1)
        ]
        for step in names
    }
    y = axis_over(value for each in lines.values() for value in values_of(each))
    if y is None:
        return {}
    return {
        step: time_chart(
            time_axis(points),
            title=one_line(step),
            about=f"Percentiles of the {kinds[step]} time of {one_line(step)} in each stretch of the run.",
            ticks=4,
            y=y,
            y_text=axis_text,
            lines=each,
            limits=[one for one in limits[step] if y.low <= one.value <= y.high],
            height=_SMALL,
            width=400,
        )
        for step, each in lines.items()
        if values_of(each)
    }


def has_response(points: Sequence[Point], step: str) -> bool:
    """Whether the response times of a step are known."""
    return any(len(one.by_step.get(step, ())) > 4 for one in points)


def _of_step(one: Point, step: str, place: int) -> float | None:
    values = one.by_step.get(step, ())
    return values[place] if place < len(values) else None


# over values --------------------------------------------------------------------------------------------


def bins_of(buckets: Buckets, axis: ChartAxis, count: int = _BINS, *, empty: bool = False) -> list[Bar]:
    """The counts in wider bins, which have the same width on a logarithmic axis. A bucket on a border is divided. Empty
    bins are left out, unless `empty`.

    >>> bars = bins_of([(1.0, 2.0, 6), (2.0, 4.0, 2)], ChartAxis(1.0, 4.0, True), 4)
    >>> [round(bar.value, 3) for bar in bars]
    [3.0, 3.0, 1.0, 1.0]
    """
    values = [0.0] * count
    for low, high, n in buckets:
        left, right = (axis.place(one) * count if one > 0 else 0.0 for one in (low, high))
        first, last = min(int(left), count - 1), min(int(right), count - 1)
        for place in range(first, last + 1):
            shared = min(right, place + 1) - max(left, place)
            values[place] += n * (shared / (right - left) if right > left else 1 / (last - first + 1))
    edges = [axis.low * (axis.high / axis.low) ** (place / count) for place in range(count + 1)]
    return [
        Bar(low=edges[place], high=edges[place + 1], value=value)
        for place, value in enumerate(values)
        if empty or value > 1e-9
    ]


def spread_axis(buckets: Buckets) -> ChartAxis | None:
    """A logarithmic axis over all buckets."""
    ends = [one for low, high, n in buckets if n for one in (low, high) if one > 0]
    return axis_over(ends, log=True)


def distribution_chart(buckets: Buckets, times: Latency | None, *, log: bool, which: Which = "service") -> Chart | None:
    """A histogram of the times; `log` also makes the axis of counts logarithmic."""
    x = spread_axis(buckets)
    if x is None or times is None:
        return None
    bars = bins_of(buckets, x)
    top = max(one.value for one in bars)
    y = axis_over([0.5, top], log=True) if log else axis_over([top], log=False)
    assert y is not None
    return Chart(
        title=f"Distribution of the {which} time",
        about=f"The times of {counted(times.count, 'request')}, from {time_text(times.min)} to {time_text(times.max)}; "
        f"half of them took at most {time_text(times.p50)}.",
        x=x,
        y=y,
        x_text=axis_text,
        y_text=count_text,
        x_ticks=x.ticks(6),
        y_ticks=whole_ticks(y),
        bars=bars,
        marks=[ChartMark(name=name, value=getattr(times, name), look="mark") for name in ("p50", "p95", "p99")],
        tips=[
            (math.sqrt(one.low * one.high), f"{time_text(one.low)} to {time_text(one.high)}: {one.value:,.0f}")
            for one in bars
        ],
    )


def percentile_line(buckets: Buckets, *, name: str, look: str) -> Curve:
    """All percentiles: by 1 / (1 - q), the value that a share q does not exceed."""
    total = sum(n for _, _, n in buckets)
    values: list[Value] = []
    before = 0
    for low, high, n in buckets:
        if n:
            middle = (low + high) / 2
            values += [(total / (total - before), middle), (total / max(1, total - before - n), middle)]
            before += n
    if values:  # up to the slowest request
        values.append((max(10.0, float(total)), values[-1][1]))
    return Curve(name=name, look=look, values=values)


def named_line(latency: Latency, *, name: str, look: str) -> Curve:
    """The percentiles that a summary keeps, if nothing finer is known."""
    values: list[Value] = [(at, getattr(latency, which)) for at, which in _NAMED if at <= latency.count]
    return Curve(name=name, look=look, values=[*values, (float(max(latency.count, 1)), latency.max)], dots=True)


def percentile_chart(lines: Sequence[Curve]) -> Chart | None:
    """Time by percentile, with as much room for the slowest hundredth as for the rest."""
    times = values_of(lines)
    y = axis_over(times)
    if y is None:
        return None
    most = max(x for line in lines for x, _ in line.values)
    x = ChartAxis(1.0, max(10.0, most), True)
    return Chart(
        title="Time by percentile",
        about=f"The time that a share of the requests did not exceed; the slowest took {time_text(max(times))}.",
        x=x,
        y=y,
        x_text=percentile_text,
        y_text=axis_text,
        x_ticks=[one for one in (2.0, *(10.0**power for power in range(1, 12))) if one <= x.high],
        lines=lines,
        tips=[(at, f"{percentile_text(at)}: {time_text(y)}") for at, y in lines[0].values],
    )


def percentile_text(at: float) -> str:
    """The percentile at 1 / (1 - q).

    >>> percentile_text(2), percentile_text(1000), percentile_text(1)
    ('50 %', '99.9 %', '0 %')
    """
    places = max(0, math.ceil(math.log10(at)) - 2) if at > 1 else 0
    return f"{(1 - 1 / at) * 100:.{places}f} %"
