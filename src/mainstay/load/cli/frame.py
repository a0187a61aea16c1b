"""How the live view looks: a picture of a run as lines that fit a terminal of any size.

The head is always there, unless there is no room for a warning otherwise: that the numbers are not those of the target
is the last thing to go. Below it, sections are given room by their importance: first each the least that it can be
told in, then as much as it has to say. What finds no room is left out; nothing is ever folded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ...clock import duration_text
from ...words import counted
from ..report.words import one_line, rate_text, share_text, time_text
from ..stats.model import Latency, ThresholdOutcome
from .live_state import Picture, StepRow
from .plot import HIGH, LOW, plot

#: from here on, what is short stands beside what is long
_WIDE = 116
_ASIDE = 44
_PLOT_LEAST, _PLOT_MOST = 6, 40
_ERRORS_MOST = 8
_THRESHOLDS_MOST = 10
_NAME_LEAST = 10
_MUCH = 8


class Section(NamedTuple):
    """A part of the picture."""

    least: int
    """lines; in fewer it is left out"""
    wanted: int
    draw: Callable[[int, int], list[Text]]
    """by width and height"""


def frame(seen: Picture, width: int, height: int, *, plain: bool = False) -> list[Text]:
    """Lines for a terminal of this size: never more than its height, none longer than its width."""
    lines = head(seen, width, plain=plain)
    if not seen.trust.ok:
        lines = lines[: max(0, height - 1)]
    room = height - len(lines)
    plotted = Section(_PLOT_LEAST, _PLOT_MOST, lambda w, h: _plot(seen, w, h, plain=plain))
    steps = Section(2, 1 + len(seen.steps), lambda w, h: _steps(seen, w, h))
    short = [_warning(seen, width, room), _thresholds(seen), _errors(seen), _health(seen)]
    if width < _WIDE:
        # by importance, and where each stands
        warning, thresholds, errors, health = short
        lines += _stacked([warning, steps, thresholds, errors, plotted, health], (0, 1, 4, 3, 2, 5), width, room)
    else:
        left = width - _ASIDE - 2
        warned = _stacked([short[0]], (0,), width, room)
        room -= len(warned)
        lines += warned
        lines += _beside(
            _stacked([steps, plotted], (1, 0), left, room), _stacked(short[1:], (0, 1, 2), _ASIDE, room), left
        )
    for line in lines:
        line.no_wrap = True
        line.truncate(width, overflow="ellipsis")
    return lines[:height]


def head(seen: Picture, width: int, *, plain: bool = False) -> list[Text]:
    """What is always there: who, how far, how fast, how slow."""
    models = [str(each.get("model", "")) for each in seen.header.workflows]
    title = [
        _Part(one_line(seen.header.name, 60), "bold", 0),
        _Part(one_line(seen.phase, 60), "green" if seen.phase == "running" else "yellow", 1),
        _Part(counted(seen.users, "user"), "", 2),
        *([_Part(f"({one_line(models[0], 80)})", "dim", 3)] if len(models) == 1 and models[0] else []),
    ]
    return [
        _fitting(title, width),
        _bar(seen, width, plain=plain),
        _fitting(_rates(seen), width),
        _fitting(_latency(seen), width),
    ]


class _Part(NamedTuple):
    """A piece of a line."""

    text: str
    style: str
    rank: int
    """the highest goes first where there is no room"""


def _fitting(parts: Sequence[_Part], width: int) -> Text:
    left = list(parts)
    while len(left) > 1 and sum(cell_len(each.text) + 2 for each in left) - 2 > width:
        left.remove(max(left, key=lambda each: each.rank))
    line = Text()
    for number, each in enumerate(left):
        line.append("  " if number else "").append(each.text, style=each.style)
    return line


def _bar(seen: Picture, width: int, *, plain: bool) -> Text:
    elapsed = duration_text(int(seen.elapsed_s))
    duration_s = seen.header.duration_s
    if not duration_s:
        return Text(f"{elapsed} so far, {seen.iterations:,} iterations")
    left = max(0, round(duration_s - seen.elapsed_s))
    words = f" {elapsed} of {duration_text(duration_s)}, " + (f"{duration_text(left)} left" if left else "ending")
    room = max(4, width - len(words))
    done = min(room, int(room * seen.elapsed_s / duration_s))
    full, empty = ("#", ".") if plain else ("━", "─")
    return _said(full * done, "green").append(empty * (room - done), style="dim").append(words)


def _rates(seen: Picture) -> list[_Part]:
    passed, failed = seen.checks
    told = f"{seen.failed:,} failed ({share_text(seen.failed, seen.requests)})" if seen.failed else "0 failed"
    parts = [
        _Part(rate_text(_whole(seen.rate)), "bold", 0),
        _Part(f"mean {rate_text(_whole(seen.mean))}", "", 4),
        _Part(told, "bold red" if seen.failed else "dim", 1),
        _Part(f"of {counted(seen.requests, 'request')}", "", 5),
    ]
    for n, what in ((seen.raised, "raised"), (seen.dropped, "dropped"), (seen.aborted, "aborted")):
        if n:
            parts.append(_Part(f"{n:,} {what}", "yellow", 2))
    if passed or failed:
        parts.append(_Part(f"checks {share_text(passed, passed + failed)}", "red" if failed else "dim", 3))
    return parts


def _latency(seen: Picture) -> list[_Part]:
    name = "response" if seen.intended else "latency"
    if seen.now is None:
        return [_Part(f"{name}: nothing ended within the last seconds", "dim", 0)]
    parts = [_Part(name, "", 2)]
    for place, (percentile, value, style) in enumerate(_quoted(seen.now)):
        parts.append(_Part(f"{percentile} {time_text(value)}", f"bold {style}" if style else "", (1, 4, 0, 3)[place]))
    if seen.intended:
        parts.append(_Part("from the intended start", "dim", 5))
    return parts


def _quoted(latency: Latency) -> list[tuple[str, float, str]]:
    return [
        ("p50", latency.p50, LOW),
        ("p95", latency.p95, ""),
        ("p99", latency.p99, HIGH),
        ("max", latency.max, ""),
    ]


def _warning(seen: Picture, width: int, room: int) -> Section:
    """That the numbers are not those of the target; in words, for it decides whether the rest is worth reading."""
    told = [] if seen.trust.ok else seen.trust.reasons or ["the generator itself is the bottleneck"]
    text = " ".join(one_line(reason) if reason.endswith(".") else f"{one_line(reason)}." for reason in told)
    lines = _folded(f"NOT TRUSTWORTHY: {text}", width) if told else []

    def draw(_width: int, height: int) -> list[Text]:
        return [Text(line, style="bold black on yellow") for line in lines[:height]]

    return Section(min(3, len(lines), max(1, room)), min(5, len(lines)), draw)


def _thresholds(seen: Picture) -> Section:
    told = sorted(seen.thresholds, key=lambda each: each.passed)
    broken = [each for each in told if not each.passed and not each.pending and each.value is not None]

    def draw(_width: int, height: int) -> list[Text]:
        if height < 1 + min(len(told), 2):
            hold = sum(each.passed for each in told)
            held = f"all {hold}" if hold == len(told) else f"{hold} of {len(told)}"
            return [_threshold(broken[0])] if broken else [_said(f"thresholds: {held} hold", "green")]
        lines = [_threshold(each) for each in told]
        return [_heading("thresholds", len(broken), "broken"), *_cut(lines, height - 1)]

    return Section(min(1, len(told)), min(1 + len(told), _THRESHOLDS_MOST) if told else 0, draw)


def _threshold(each: ThresholdOutcome) -> Text:
    if each.value is None:
        return _said("  ? ", "dim").append(f"{one_line(each.text)}: no value yet", style="dim")
    if each.pending:
        return _said("  … ", "dim").append(
            f"{one_line(each.text)}  {one_line(each.shown)}, not reached yet", style="dim"
        )
    mark, style = ("  ✓ ", "green") if each.passed else ("  ✗ ", "bold red")
    line = _said(mark, style).append(one_line(each.text), style="" if each.passed else style)
    return line.append(f"  {one_line(each.shown)}", style="dim" if each.passed else style)


def _errors(seen: Picture) -> Section:
    told = seen.errors

    def draw(_width: int, height: int) -> list[Text]:
        if height < 2:
            return [Text("errors: " + ", ".join(f"{n:,} {kind}" for kind, n, _ in told), style="red")]
        lines = []
        for kind, n, said in told:
            line = _said(f"{n:>9,} ", "red").append(kind)
            lines.append(line.append(f"  {said}", style="dim") if said and said != kind else line)
        return [_heading("errors"), *_cut(lines, height - 1)]

    return Section(min(1, len(told)), min(1 + len(told), _ERRORS_MOST) if told else 0, draw)


class _Column(NamedTuple):
    title: str
    width: int
    cell: Callable[[StepRow], str]
    shown_at: int
    """where it stands; they are chosen by importance"""
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


def _steps(seen: Picture, width: int, height: int) -> list[Text]:
    chosen, left = [], width - max(_NAME_LEAST, min(30, max((cell_len(row.name) for row in seen.steps), default=0)))
    for column in _COLUMNS:
        if column.width <= left and (column.title != "skipped" or any(row.skipped for row in seen.steps)):
            chosen.append(column)
            left -= column.width
    chosen.sort(key=lambda column: column.shown_at)
    name = max(4, width - sum(column.width for column in chosen))
    name = min(name, max(_NAME_LEAST, *(cell_len(row.name) for row in seen.steps))) if seen.steps else name
    titles = _said("step".ljust(name), "bold")
    for column in chosen:
        titles.append(column.title.rjust(column.width), style="bold")
    # failed ones first if there is no room for all: they are what somebody looks for
    rows = seen.steps
    if len(rows) > height - 1:
        rows = sorted(rows, key=lambda row: (-row.failed, -row.requests))
    return [titles, *_cut([_step(row, chosen, name) for row in rows], height - 1)]


def _step(row: StepRow, chosen: Sequence[_Column], name: int) -> Text:
    line = Text()
    short = row.name if cell_len(row.name) <= name else set_cell_size(row.name, name - 1) + "…"
    line.append(set_cell_size(short, name))
    for column in chosen:
        style = "red" if column.title == "failed" and row.failed else column.style
        line.append(column.cell(row).rjust(column.width), style=style)
    return line


def _health(seen: Picture) -> Section:
    told = sorted(seen.health.items())

    def draw(_width: int, height: int) -> list[Text]:
        if height < 1 + min(len(told), 2):
            cpu, lag = max(each.cpu for _, each in told), max(each.lag for _, each in told)
            return [_said(f"generators: {len(told)}, CPU {cpu:.0%}, lag {time_text(lag)}", "dim")]
        lines = []
        for process, each in told:
            style = "bold red" if each.cpu > 0.9 else "yellow" if each.cpu > 0.75 else "green"
            line = Text(f"  {process:<3}").append(f"CPU {each.cpu:>4.0%}", style=style)
            line.append(f"  lag {time_text(each.lag):>8}", style="red" if each.lag > 0.05 else "")
            if each.memory:
                line.append(f"  {each.memory / 1e6:,.0f} MB", style="dim")
            if each.files_limit:
                scarce = each.files > 0.9 * each.files_limit
                line.append(f"  {each.files:,} files", style="red" if scarce else "dim")
            lines.append(line)
        return [_heading("generators"), *_cut(lines, height - 1)]

    return Section(min(1, len(told)), min(1 + len(told), 9) if told else 0, draw)


def _plot(seen: Picture, width: int, height: int, *, plain: bool) -> list[Text]:
    title = _heading("response time" if seen.intended else "latency")
    title.append(" ─ " if not plain else " - ", style="dim").append("p50", style=LOW).append(" ").append(
        "p99", style=HIGH
    )
    return [title, *plot(seen.slices, width, height - 1, until_s=seen.elapsed_s, plain=plain)]


def _stacked(sections: Sequence[Section], order: Sequence[int], width: int, height: int) -> list[Text]:
    """Sections by importance, drawn in another order, in so many lines."""
    given, left = [0] * len(sections), height
    for number, each in enumerate(sections):
        if 0 < each.least <= left:
            given[number] = each.least
            left -= each.least
    for number, each in enumerate(sections):
        if given[number]:
            more = min(left, each.wanted - given[number])
            if more > _MUCH:
                # what is long leaves room for what comes after it, and for some air
                more = max(_MUCH, more // 2 if any(given[number + 1 :]) else left - len(sections))
                more = min(more, each.wanted - given[number])
            given[number] += more
            left -= more
    lines: list[Text] = []
    shown = [number for number in sorted(range(len(sections)), key=lambda each: order[each]) if given[number]]
    airy = left >= len(shown)
    for number in shown:
        # a line between them where there is room for all of those
        lines += [Text()] if airy else []
        lines += sections[number].draw(width, given[number])
    return lines


def _beside(left: list[Text], right: list[Text], width: int) -> list[Text]:
    lines = []
    for number in range(max(len(left), len(right))):
        line = left[number] if number < len(left) else Text()
        if number < len(right):
            line.truncate(width, overflow="ellipsis", pad=True)
            line.append("  ").append_text(right[number])
        lines.append(line)
    return lines


def _heading(name: str, n: int = 0, what: str = "") -> Text:
    line = _said(name, "bold")
    return line.append(f"  {n:,} {what}", style="bold red") if n else line


def _cut(lines: list[Text], height: int) -> list[Text]:
    """So many of them; the last one says what is left out."""
    if len(lines) <= height or height < 2:
        return lines[:height]
    return [*lines[: height - 1], _said(f"  and {len(lines) - height + 1:,} more", "dim")]


def _folded(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + 1 + len(word) > width and lines[-1]:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _said(text: str, style: str) -> Text:
    """A beginning with a style of its own: what is appended does not have it."""
    return Text().append(text, style=style)


def _whole(rate: float) -> float:
    """A rate that changes four times a second is read by its size."""
    return float(round(rate)) if rate >= 10 else rate
