"""A frame of the live view: the state of a run as lines that fit a terminal of any size.

The head is always shown, unless a warning needs its room: that the numbers are not those of the target is the last
thing to go. Below it, sections get room by importance: each first gets the least it needs, then as much as it wants.
Sections without room are left out; lines are never folded.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ...clock import duration_text
from ...words import counted
from ..report.words import one_line, rate_text, share_text, time_text
from ..stats.model import Health, ThresholdOutcome
from .live_state import LiveState, StepRow, is_broken, reasons_of
from .plot import HIGH, LOW, plot

T = TypeVar("T")

#: from this width on, short sections stand beside long ones
_WIDE = 116
_ASIDE = 44
_PLOT_LEAST, _PLOT_MOST = 6, 40
_ERRORS_MOST = 8
_THRESHOLDS_MOST = 10
_GENERATORS_MOST = 9
_NAME_LEAST = 10
#: lines that a section may always take beyond its least
_MUCH = 8


class FrameSection(NamedTuple):
    """A part of the frame."""

    least: int
    """lines; with fewer it is left out"""
    wanted: int
    draw: Callable[[int, int], list[Text]]
    """by width and height"""


def frame(state: LiveState, width: int, height: int, *, plain: bool = False) -> list[Text]:
    """Lines for a terminal of this size: no more than its height, none longer than its width."""
    lines = _head(state, width, plain=plain)
    if not state.trust.ok:
        lines = lines[: max(0, height - 1)]
    room = height - len(lines)
    rows = state.steps()
    plotted = FrameSection(_PLOT_LEAST, _PLOT_MOST, lambda w, h: _plot(state, w, h, plain=plain))
    steps = FrameSection(2, 1 + len(rows), lambda w, h: _steps(rows, w, h))
    warning, thresholds, errors, health = (
        _warning(state, width, room),
        _thresholds(state),
        _errors(state),
        _health(state),
    )
    if width < _WIDE:
        # by importance, and the place of each
        lines += _stacked([warning, steps, thresholds, errors, plotted, health], (0, 1, 4, 3, 2, 5), width, room)
    else:
        left = width - _ASIDE - 2
        warned = _stacked([warning], (0,), width, room)
        room -= len(warned)
        lines += warned
        lines += _beside(
            _stacked([steps, plotted], (1, 0), left, room),
            _stacked([thresholds, errors, health], (0, 1, 2), _ASIDE, room),
            left,
        )
    for line in lines:
        line.no_wrap = True
        line.truncate(width, overflow="ellipsis")
    return lines[:height]


# the head -----------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A piece of a line."""

    text: str
    style: str
    rank: int
    """without room for all, the highest rank goes first"""


def _head(state: LiveState, width: int, *, plain: bool) -> list[Text]:
    models = [str(each.get("model", "")) for each in state.header.workflows]
    title = [
        _Part(one_line(state.header.name, 60), "bold", 0),
        _Part(one_line(state.phase, 60), "green" if state.phase == "running" else "yellow", 1),
        _Part(counted(state.users, "user"), "", 2),
        *([_Part(f"({one_line(models[0], 80)})", "dim", 3)] if len(models) == 1 and models[0] else []),
    ]
    return [
        _fitting(title, width),
        _bar(state, width, plain=plain),
        _fitting(_rates(state), width),
        _fitting(_latency(state), width),
    ]


def _fitting(parts: Sequence[_Part], width: int) -> Text:
    left = list(parts)
    while len(left) > 1 and sum(cell_len(each.text) + 2 for each in left) - 2 > width:
        left.remove(max(left, key=lambda each: each.rank))
    return Text("  ").join(Text(each.text, style=each.style) for each in left)


def _bar(state: LiveState, width: int, *, plain: bool) -> Text:
    elapsed = duration_text(int(state.elapsed_s))
    duration_s = state.header.duration_s
    if not duration_s:
        return Text(f"{elapsed} so far, {state.iterations:,} iterations")
    left = max(0, round(duration_s - state.elapsed_s))
    words = f" {elapsed} of {duration_text(duration_s)}, " + (f"{duration_text(left)} left" if left else "ending")
    room = max(4, width - len(words))
    done = min(room, int(room * state.elapsed_s / duration_s))
    full, empty = ("#", ".") if plain else ("━", "─")
    return Text.assemble((full * done, "green"), (empty * (room - done), "dim"), words)


def _rates(state: LiveState) -> list[_Part]:
    calls, passed, failed = state.calls, state.checks_passed, state.checks_failed
    failures = f"{calls.failed:,} failed ({share_text(calls.failed, calls.requests)})" if calls.failed else "0 failed"
    parts = [
        _Part(rate_text(_whole(state.rate)), "bold", 0),
        _Part(f"mean {rate_text(_whole(state.mean_rate))}", "", 4),
        _Part(failures, "bold red" if calls.failed else "dim", 1),
        _Part(f"of {counted(calls.requests, 'request')}", "", 5),
    ]
    for n, what in ((calls.raised, "raised"), (state.dropped, "dropped"), (state.aborted, "aborted")):
        if n:
            parts.append(_Part(f"{n:,} {what}", "yellow", 2))
    if passed or failed:
        parts.append(_Part(f"checks {share_text(passed, passed + failed)}", "red" if failed else "dim", 3))
    return parts


def _latency(state: LiveState) -> list[_Part]:
    name = "response" if state.calls.intended else "latency"
    latency = state.latency_now()
    if latency is None:
        return [_Part(f"{name}: no request ended in the last seconds", "dim", 0)]
    parts = [
        _Part(name, "", 2),
        _Part(f"p50 {time_text(latency.p50)}", f"bold {LOW}", 1),
        _Part(f"p95 {time_text(latency.p95)}", "", 4),
        _Part(f"p99 {time_text(latency.p99)}", f"bold {HIGH}", 0),
        _Part(f"max {time_text(latency.max)}", "", 3),
    ]
    if state.calls.intended:
        parts.append(_Part("from the intended start", "dim", 5))
    return parts


# sections -----------------------------------------------------------------------------------------------


def _warning(state: LiveState, width: int, room: int) -> FrameSection:
    """Why the result is not trustworthy: in full, for it decides whether the rest is worth reading."""
    reasons = " ".join(
        one_line(reason) if reason.endswith(".") else f"{one_line(reason)}." for reason in reasons_of(state.trust)
    )
    warning = "" if state.trust.ok else f"NOT TRUSTWORTHY: {reasons}"
    lines = textwrap.wrap(warning, width, break_long_words=False, break_on_hyphens=False)

    def draw(_width: int, height: int) -> list[Text]:
        return [Text(line, style="bold black on yellow") for line in lines[:height]]

    return FrameSection(min(3, len(lines), max(1, room)), min(5, len(lines)), draw)


def _listed(
    heading: Text, items: Sequence[T], row: Callable[[T], Text], short: Callable[[], Text], *, most: int, full: int = 2
) -> FrameSection:
    """Rows below a heading, or one short line where there is no room for `full` rows."""

    def draw(_width: int, height: int) -> list[Text]:
        return [short()] if height < 1 + min(len(items), full) else [heading, *_cut(items, row, height - 1)]

    return FrameSection(min(1, len(items)), min(1 + len(items), most) if items else 0, draw)


def _thresholds(state: LiveState) -> FrameSection:
    thresholds = sorted(state.thresholds, key=lambda each: each.passed)
    broken = [each for each in thresholds if is_broken(each)]

    def short() -> Text:
        if broken:
            return _threshold(broken[0])
        hold = sum(each.passed for each in thresholds)
        share = f"all {hold}" if hold == len(thresholds) else f"{hold} of {len(thresholds)}"
        return Text(f"thresholds: {share} hold", style="green")

    heading = Text.assemble(("thresholds", "bold"), (f"  {len(broken):,} broken" if broken else "", "bold red"))
    return _listed(heading, thresholds, _threshold, short, most=_THRESHOLDS_MOST)


def _threshold(each: ThresholdOutcome) -> Text:
    text, shown = one_line(each.text), one_line(each.shown)
    if each.value is None:
        return Text(f"  ? {text}: no value yet", style="dim")
    if each.pending:
        return Text(f"  … {text}  {shown}, not reached yet", style="dim")
    if each.passed:
        return Text.assemble(("  ✓ ", "green"), text, (f"  {shown}", "dim"))
    return Text(f"  ✗ {text}  {shown}", style="bold red")


def _errors(state: LiveState) -> FrameSection:
    errors = state.errors()

    def row(error: tuple[str, int, str]) -> Text:
        kind, n, example = error
        return Text.assemble((f"{n:>9,} ", "red"), kind, (f"  {example}" if example not in ("", kind) else "", "dim"))

    def short() -> Text:
        return Text("errors: " + ", ".join(f"{n:,} {kind}" for kind, n, _ in errors), style="red")

    return _listed(Text("errors", style="bold"), errors, row, short, most=_ERRORS_MOST, full=1)


def _health(state: LiveState) -> FrameSection:
    processes = sorted(state.health.items())

    def short() -> Text:
        cpu, lag = max(each.cpu for _, each in processes), max(each.lag for _, each in processes)
        return Text(f"generators: {len(processes)}, CPU {cpu:.0%}, lag {time_text(lag)}", style="dim")

    return _listed(Text("generators", style="bold"), processes, _generator, short, most=_GENERATORS_MOST)


def _generator(numbered: tuple[int, Health]) -> Text:
    process, each = numbered
    style = "bold red" if each.cpu > 0.9 else "yellow" if each.cpu > 0.75 else "green"
    line = Text(f"  {process:<3}").append(f"CPU {each.cpu:>4.0%}", style=style)
    line.append(f"  lag {time_text(each.lag):>8}", style="red" if each.lag > 0.05 else "")
    if each.memory:
        line.append(f"  {each.memory / 1e6:,.0f} MB", style="dim")
    if each.files_limit:
        scarce = each.files > 0.9 * each.files_limit
        line.append(f"  {each.files:,} files", style="red" if scarce else "dim")
    if each.node:
        line.append(f"  {each.node}", style="dim")
    return line


class _Column(NamedTuple):
    title: str
    width: int
    cell: Callable[[StepRow], str]
    shown_at: int
    """its place; columns are chosen by importance"""
    style: str = ""


def _of(row: StepRow, name: str) -> str:
    return time_text(None if row.latency is None else getattr(row.latency, name))


_COLUMNS = (
    _Column("p99", 9, lambda row: _of(row, "p99"), 5, HIGH),
    _Column("requests", 12, lambda row: f"{row.requests:,}", 0),
    _Column("failed", 9, lambda row: f"{row.failed:,}", 1),
    _Column("p50", 9, lambda row: _of(row, "p50"), 3, LOW),
    _Column("now", 11, lambda row: rate_text(_whole(row.rate)), 2),
    _Column("max", 9, lambda row: _of(row, "max"), 6),
    _Column("p95", 9, lambda row: _of(row, "p95"), 4),
    _Column("skipped", 9, lambda row: f"{row.skipped:,}", 7),
)


def _steps(rows: list[StepRow], width: int, height: int) -> list[Text]:
    longest = max((cell_len(row.name) for row in rows), default=0)
    chosen, left = [], width - max(_NAME_LEAST, min(30, longest))
    for column in _COLUMNS:
        if column.width <= left and (column.title != "skipped" or any(row.skipped for row in rows)):
            chosen.append(column)
            left -= column.width
    chosen.sort(key=lambda column: column.shown_at)
    name = max(4, width - sum(column.width for column in chosen))
    name = min(name, max(_NAME_LEAST, longest)) if rows else name
    titles = Text("step".ljust(name) + "".join(column.title.rjust(column.width) for column in chosen), style="bold")
    # without room for all, those that failed come first
    if len(rows) > height - 1:
        rows = sorted(rows, key=lambda row: (-row.failed, -row.requests))
    return [titles, *_cut(rows, lambda row: _step(row, chosen, name), height - 1)]


def _step(row: StepRow, chosen: Sequence[_Column], name: int) -> Text:
    short = row.name if cell_len(row.name) <= name else set_cell_size(row.name, name - 1) + "…"
    line = Text(set_cell_size(short, name))
    for column in chosen:
        style = "red" if column.title == "failed" and row.failed else column.style
        line.append(column.cell(row).rjust(column.width), style=style)
    return line


def _plot(state: LiveState, width: int, height: int, *, plain: bool) -> list[Text]:
    name = "response time" if state.calls.intended else "latency"
    title = Text.assemble((name, "bold"), (" - " if plain else " ─ ", "dim"), ("p50", LOW), " ", ("p99", HIGH))
    return [title, *plot(state.slices(), width, height - 1, until_s=state.elapsed_s, plain=plain)]


# layout -------------------------------------------------------------------------------------------------


def _stacked(sections: Sequence[FrameSection], order: Sequence[int], width: int, height: int) -> list[Text]:
    """Sections, given by importance and drawn in another order, within a number of lines."""
    given, left = [0] * len(sections), height
    for number, each in enumerate(sections):
        if 0 < each.least <= left:
            given[number] = each.least
            left -= each.least
    for number, each in enumerate(sections):
        if given[number]:
            more = min(left, each.wanted - given[number])
            if more > _MUCH:
                # a long section leaves room for the next ones, and for blank lines
                more = max(_MUCH, more // 2 if any(given[number + 1 :]) else left - len(sections))
                more = min(more, each.wanted - given[number])
            given[number] += more
            left -= more
    lines: list[Text] = []
    shown = [number for number in sorted(range(len(sections)), key=lambda each: order[each]) if given[number]]
    airy = left >= len(shown)
    for number in shown:
        # a blank line before each, if there is room for all of them
        lines += [Text()] if airy else []
        lines += sections[number].draw(width, given[number])
    return lines


def _beside(left: list[Text], right: list[Text], width: int) -> list[Text]:
    lines = []
    for number in range(max(len(left), len(right))):
        line = Text()  # without a style of its own, which would reach to the right
        if number < len(left):
            line.append_text(left[number])
        if number < len(right):
            line.truncate(width, overflow="ellipsis", pad=True)
            line.append("  ").append_text(right[number])
        lines.append(line)
    return lines


def _cut(items: Sequence[T], row: Callable[[T], Text], height: int) -> list[Text]:
    """As many rows as fit; the last line says how many are left out."""
    if len(items) <= height or height < 2:
        return [row(each) for each in items[:height]]
    more = Text(f"  and {len(items) - height + 1:,} more", style="dim")
    return [*(row(each) for each in items[: height - 1]), more]


def _whole(rate: float) -> float:
    """A rate that changes four times a second is read by its size."""
    return float(round(rate)) if rate >= 10 else rate
