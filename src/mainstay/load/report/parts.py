"""Pieces of a page: tables, figures, bars. What goes in is HTML already, unless it says text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

from ...report.pages import asset, document
from .svg import Chart, drawing, legend
from .words import one_line


def load_document(title: str, parts: Iterable[str], *, footer: str) -> str:
    """A whole page in the style of load reports, with the script that reads values off its charts."""
    style, script = asset(__package__, "load.css"), asset(__package__, "hover.js")
    return document(title, parts, footer=footer, styles=[style], script=script)


def text(value: str) -> str:
    """Text that others made, safe to stand in a page."""
    return escape(one_line(value))


def code(value: str) -> str:
    """The same for what is copied or compared."""
    return f"<code>{text(value)}</code>"


def section(title: str, *parts: str) -> str:
    """A part of the page with a heading; nothing at all, if it would be empty."""
    inner = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{inner}\n</section>" if inner else ""


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, words: Collection[int] = (0,), grow: int | None = None
) -> str:
    """A table; the columns that are not in `words` hold numbers. `grow` is the one that takes what is left."""

    def row(tag: str, cells: Sequence[str]) -> str:
        made = []
        for place, cell in enumerate(cells):
            kinds = ([] if place in words or place == grow else ["num"]) + (["grow"] if place == grow else [])
            kind = f' class="{" ".join(kinds)}"' if kinds else ""
            scope = " scope=col" if tag == "th" else ""
            made.append(f"<{tag}{kind}{scope}>{cell}</{tag}>")
        return f"<tr>{''.join(made)}</tr>"

    if not rows:
        return ""
    body = "\n".join(row("td", one) for one in rows)
    head = f"<thead>{row('th', heads)}</thead>\n" if any(heads) else ""
    # what is scrolled must be reached by keyboard, too
    return f'<div class="wide" tabindex="0"><table class="list">\n{head}<tbody>\n{body}\n</tbody></table></div>'


def folded(title: str, inner: str) -> str:
    """What is there for those who ask for it."""
    return f"<details><summary>{escape(title)}</summary>\n{inner}\n</details>" if inner else ""


def figure(chart: Chart | None, ident: str, *, key: bool = True) -> str:
    """A chart with its title and legend."""
    if chart is None:
        return ""
    told = legend(chart.lines) if key and len(chart.lines) > 1 else ""
    return f"<figure>\n<figcaption>{escape(chart.title)}</figcaption>\n{drawing(chart, ident)}\n{told}\n</figure>"


def two_scales(even: Chart | None, tall: Chart | None, ident: str, *, log: bool) -> str:
    """A chart with an even and with a logarithmic scale; which one is seen is chosen without a script."""
    if even is None or tall is None:
        return figure(even or tall, ident)

    def pick(kind: str, chosen: bool) -> str:
        name = f'class="pick pick-{kind}" name="{ident}" id="{ident}-{kind}"'
        return f'<input type="radio" {name} aria-label="{_SCALES[kind]} scale"{" checked" if chosen else ""}>'

    labels = " ".join(f'<label class="for-{kind}" for="{ident}-{kind}">{_SCALES[kind]}</label>' for kind in _SCALES)
    return (
        f"<figure>\n<figcaption>{escape(even.title)}</figcaption>\n{pick('even', not log)}{pick('tall', log)}\n"
        f'<div class="scale">{labels}</div>\n'
        f'<div class="even">{drawing(even, f"{ident}-e")}</div>\n'
        f'<div class="tall">{drawing(tall, f"{ident}-l")}</div>\n'
        f"{legend(even.lines) if even.lines else ''}\n</figure>"
    )


_SCALES = {"even": "linear", "tall": "logarithmic"}


def gauge(part: float, limit: float, *, over: bool) -> str:
    """A bar as long as a value, with a line where its limit is; both as a part of the whole width."""
    return (
        f'<span class="gauge{" over" if over else ""}" aria-hidden="true">'
        f'<b style="width:{_percent(part)}"></b><i style="left:{_percent(limit)}"></i></span>'
    )


def share_bar(part: float) -> str:
    """A bar as long as a part of all."""
    return f'<span class="gauge over" aria-hidden="true"><b style="width:{_percent(part)}"></b></span>'


def _percent(part: float) -> str:
    return f"{min(1.0, max(0.0, part)) * 100:.1f}%"
