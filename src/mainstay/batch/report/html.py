"""The report of a batch as one HTML page: no script, no network, nothing beside it; for screens, phones and paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ...clock import duration_text
from ...lifecycle import table_of, time_text
from ...report.pages import asset, document
from .heat_map import Cell, Facet, HeatMap, Level, heat_map, level_of, params_text
from .model import BatchReport, advice_for

#: room of a map, and of all maps together: a page stays small, however many sets there are
_COLUMNS, _ROWS, _FACETS, _CELLS = 40, 40, 12, 1600
#: up to so many columns a cell has room for its share
_WITH_SHARE = 14
_SETS = 50
SYMBOLS: dict[Level, str] = {"all": "●", "most": "◕", "half": "◑", "few": "◔", "none": "○"}
MEANINGS: dict[Level, str] = {
    "all": "all units intact",
    "most": "two thirds or more",
    "half": "a third or more",
    "few": "fewer",
    "none": "none",
}


def batch_html(report: BatchReport) -> str:
    """The page."""
    title = f"{report.study}: {report.status}"
    parts = [
        _head(report),
        _advice(report),
        map_html(report),
        _sets(report),
        _troubles(report),
        _lacking(report),
        _aggregations(report),
        _validations(report),
        _about(report),
    ]
    return document(
        title, parts, footer=f"Mainstay, {time_text(report.at_ms)}", styles=[asset(__package__, "batch.css")]
    )


def _head(report: BatchReport) -> str:
    state = table_of(None).get(report.status)
    kind = "good" if report.status == "succeeded" else "bad" if report.status not in ("cancelled", "skipped") else "off"
    if state is not None and not state.settled:
        kind = "busy"
    symbol = {"good": "✓", "bad": "✗", "busy": "…", "off": "–"}[kind]
    units, outputs = report.units, report.outputs
    ran = f"{units.succeeded:,} run, {units.there + units.skipped:,} there before"
    took = duration_text(max(0.001, round(report.took_s, 1))) if report.rounds else "–"
    rounds = {0: "not begun", 1: "in one go"}.get(report.rounds, f"started {report.rounds} times")
    facts = [
        ("Parameter sets", f"{report.sets:,}", f"{_whole(report):,} whole" if report.outcomes else ""),
        ("Units", f"{report.total:,}", ran),
        ("Failed", f"{units.failed:,}", "units, since it was last started" if report.rounds > 1 else "units"),
        ("Outputs", f"{outputs.present:,} of {outputs.expected:,}", _gaps(report)),
        ("Time", took, rounds),
    ]
    return (
        f'<header>\n<h1>{escape(report.study)} <span class="pill {kind}">{symbol} {escape(report.status)}</span></h1>\n'
        f'<p class="soft"><code>{report.id}</code></p>\n'
        + (f"<p>{escape(report.reason)}</p>\n" if report.reason else "")
        + '<dl class="facts">\n'
        + "\n".join(f"<div><dt>{a}</dt><dd>{b}<small>{escape(c)}</small></dd></div>" for a, b, c in facts)
        + "\n</dl>\n</header>"
    )


def _whole(report: BatchReport) -> int:
    return sum(one.intact == one.units for one in report.outcomes)


def _gaps(report: BatchReport) -> str:
    found = report.outputs
    if found.source == "unknown":
        return "could not be looked at"
    gaps = [(found.missing, "missing"), (found.corrupt, "corrupt"), (found.unreadable, "unreadable")]
    return ", ".join(f"{n:,} {what}" for n, what in gaps if n) or "all intact"


def _advice(report: BatchReport) -> str:
    lacking = report.outputs.expected - report.outputs.present
    told = advice_for(report.id, report.status, lacking=lacking)
    if not told:
        return ""
    lines = "".join(f"<p>{escape(one.why)}:<br><code>{escape(one.command)}</code></p>" for one in told)
    return f'<section class="do">{lines}</section>'


def map_html(report: BatchReport) -> str:
    """The parameter sets by outcome, as a part of a page."""
    if not report.outcomes:
        why = f": {escape(report.outputs.why)}" if report.outputs.why else ""
        return f"<section><h2>Parameter sets by outcome</h2><p>The outputs could not be looked at{why}.</p></section>"
    found = _fitting(report)
    notes = []
    if found.fixed:
        notes.append("The same in all sets: " + ", ".join(f"{name}={value}" for name, value in found.fixed.items()))
    if found.averaged:
        notes.append(f"A cell is over all values of {', '.join(found.averaged)}")
    if found.x.binned or found.y.binned:
        names = [axis.name for axis in (found.x, found.y) if axis.binned]
        notes.append(f"{' and '.join(names)} by ranges of values")
    key = "".join(f'<b><span class="{level[0]}">{SYMBOLS[level]}</span>{MEANINGS[level]}</b> ' for level in SYMBOLS)
    return (
        "<section>\n<h2>Parameter sets by outcome</h2>\n"
        f'<p class="key soft">{key}</p>\n'
        + "".join(f'<p class="soft">{escape(note)}.</p>\n' for note in notes)
        + "\n".join(_facet(found, facet) for facet in found.facets)
        + "\n</section>"
    )


def _fitting(report: BatchReport) -> HeatMap:
    """As fine as there is room for."""
    columns, rows = _COLUMNS, _ROWS
    while True:
        found = heat_map(report.outcomes, columns=columns, rows=rows, facets=_FACETS)
        if len(found.x.labels) * len(found.y.labels) * len(found.facets) <= _CELLS:
            return found
        columns, rows = columns * 3 // 4, rows * 3 // 4


def _facet(found: HeatMap, facet: Facet) -> str:
    wide = len(found.x.labels) > _WITH_SHARE
    lines = []
    if found.x.name:
        heads = "".join(f"<th scope=col>{escape(label)}</th>" for label in found.x.labels)
        corner = f"{found.y.name} ↓ " if found.y.name else ""
        lines.append(f"<thead><tr><th class=axis>{escape(corner)}{escape(found.x.name)} →</th>{heads}</tr></thead>")
    lines.append("<tbody>")
    for label, row in zip(found.y.labels, facet.rows, strict=True):
        cells = "".join(_cell(cell, with_share=not wide) for cell in row)
        lines.append(f"<tr><th scope=row>{escape(label)}</th>{cells}</tr>")
    lines.append("</tbody>")
    title = f"<h3>{escape(facet.title)}</h3>\n" if facet.title else ""
    table = "\n".join(lines)
    return f'{title}<div class="wide"><table class="map{" dense" if wide else ""}">\n{table}\n</table></div>'


def _cell(cell: Cell | None, *, with_share: bool) -> str:
    if cell is None:
        return "<td></td>"
    text = SYMBOLS[cell.level] + (f" {cell.intact}/{cell.units}" if with_share else "")
    title = "" if with_share else f' title="{cell.intact}/{cell.units}"'
    return f"<td class={cell.level[0]}{title}>{text}</td>"


def _sets(report: BatchReport) -> str:
    broken = sorted((one for one in report.outcomes if one.intact < one.units), key=lambda one: one.intact / one.units)
    if not broken:
        return ""
    rows = [
        (
            SYMBOLS[level_of(one.intact, one.units)],
            f"<code>{escape(params_text(one.params))}</code>",
            f"{one.intact:,} of {one.units:,}",
        )
        for one in broken[:_SETS]
    ]
    return _section("Sets that are not whole", ("", "parameters", "units intact"), rows, len(broken))


def _troubles(report: BatchReport) -> str:
    rows = [
        (f"{one.units:,}", f"{escape(one.type)}: {escape(one.message)}", f"<code>{escape(one.example)}</code>")
        for one in report.troubles
    ]
    if report.other_troubles is not None:
        rows.append((f"{report.other_troubles.units:,}", escape(str(report.other_troubles)), ""))
    return _section("Errors of units", ("units", "error", "for instance"), rows, len(rows)) if rows else ""


def _lacking(report: BatchReport) -> str:
    found = report.outputs
    rows = [(escape(one.state), f"<code>{escape(one.path)}</code>", escape(one.detail)) for one in report.lacking]
    total = found.missing + found.corrupt + found.unreadable
    return _section("Outputs that lack", ("state", "path", "what is wrong"), rows, total) if rows else ""


def _aggregations(report: BatchReport) -> str:
    rows = [
        (escape(name), *(f"{n:,}" for n in (one.succeeded, one.there + one.skipped, one.failed, one.idle)))
        for name, one in report.aggregations.items()
    ]
    heads = ("aggregation", "made", "there before", "failed", "inputs incomplete")
    return _section("Aggregations", heads, rows, len(rows)) if rows else ""


def _validations(report: BatchReport) -> str:
    rows = [
        (time_text(one.at_ms), escape(one.verdict), *(f"{n:,}" for n in (one.present, one.missing, one.corrupt)))
        for one in report.validations
    ]
    heads = ("validated", "verdict", "present", "missing", "corrupt")
    return _section("Looks at the outputs", heads, rows, len(rows)) if rows else ""


def _about(report: BatchReport) -> str:
    facts = [
        ("outputs are in", f"<code>{escape(report.place)}</code>"),
        ("code version", f"<code>{escape(report.code)}</code>" + (f"; {escape(report.mixed)}" if report.mixed else "")),
        ("submitted", time_text(report.submitted_ms)),
        ("started", "" if report.began_ms is None else time_text(report.began_ms)),
        ("ended", "" if report.ended_ms is None else time_text(report.ended_ms)),
        ("repairs", f"<code>{escape(report.resumed_from)}</code>" if report.resumed_from else ""),
    ]
    return _section("About this run", ("", ""), [fact for fact in facts if fact[1]], 0)


def _section(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], total: int) -> str:
    rows = list(rows)
    numbers = {place for place, head in enumerate(heads) if _is_number(head)}
    lines = [_row("td", row, numbers) for row in rows]
    head = f"<thead>{_row('th', heads, numbers)}</thead>\n" if any(heads) else ""
    more = f'<p class="soft">{total - len(rows):,} more.</p>\n' if total > len(rows) else ""
    body = "\n".join(lines)
    return (
        f"<section>\n<h2>{escape(title)}</h2>\n"
        f'<div class="wide"><table class="list">\n{head}<tbody>\n{body}\n</tbody></table></div>\n{more}</section>'
    )


def _row(tag: str, cells: Sequence[str], numbers: set[int]) -> str:
    made = (f"<{tag}{' class=num' if place in numbers else ''}>{cell}</{tag}>" for place, cell in enumerate(cells))
    return f"<tr>{''.join(made)}</tr>"


def _is_number(head: str) -> bool:
    return head in (
        "units",
        "units intact",
        "made",
        "there before",
        "failed",
        "inputs incomplete",
        "present",
        "missing",
        "corrupt",
    )
