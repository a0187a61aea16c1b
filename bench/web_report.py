"""The tables of the web suite, for the terminal and for the documentation."""

from __future__ import annotations

from pathlib import Path

import msgspec

from . import web_pages
from .report import NONE, TITLES, Section
from .web import Report
from .web_load import Asked
from .web_pages import FLAT, MOST_MS, Paged
from .web_streams import Streamed

KEPT = Path(__file__).resolve().parent / "results" / "web.json"


def load(path: Path = KEPT) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def save(report: Report, path: Path = KEPT) -> None:
    """What we set out to keep goes with it, for whoever reads only the file."""
    kept = {**msgspec.to_builtins(report), "bars": [dict(zip(_BARS, line, strict=True)) for line in bars(report)]}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


_BARS = ("what", "measured", "wanted", "met")


def bars(report: Report) -> list[list[str]]:
    """First pages are there soon, also for whoever asks first, and far ones as soon as the first."""
    lines = [
        [
            f"{_page(each)}, {each.jobs:,} jobs, {TITLES[each.store]}",
            f"p99 {_ms(each.p99_ms)} ms",
            f"under {MOST_MS:.0f} ms",
            _met(each.soon),
        ]
        for each in report.paged
        if each.page == 1
    ]
    lines += [
        [
            f"{_page(each)} asked first, {each.jobs:,} jobs, {TITLES[each.store]}",
            f"{_ms(each.first_ms)} ms",
            f"under {MOST_MS:.0f} ms",
            _met(each.soon_at_first),
        ]
        for each in report.paged
        if each.page == 1
    ]
    return lines + [
        [
            f"{_page(far)} beside the first, {far.jobs:,} jobs, {TITLES[far.store]}",
            f"p50 {far.p50_ms / first.p50_ms:.2f}x",
            f"at most {FLAT:g}x",
            _met(web_pages.flat(first, far)),
        ]
        for first, far in web_pages.pairs(report.paged)
    ]


def sections(report: Report) -> list[Section]:
    """Every table; those without a row are left out."""
    tables = [
        Section("HTTP: what we set out to keep", ("", "measured", "wanted", ""), bars(report)),
        Section(
            "HTTP: requests under load",
            (
                "",
                "store",
                "connections",
                "by",
                "requests/s",
                "jobs/s",
                "p50, ms",
                "p99, ms",
                "server CPU, ms a request",
                "store CPU, ms a request",
                "requests",
                "failed",
            ),
            [_asked(each) for each in report.asked],
        ),
        Section(
            "HTTP: live streams",
            (
                "clients on",
                "store",
                "clients",
                "heard of a change after, p50, ms",
                "p99, ms",
                "of its end, p99, ms",
                "missed something",
                "server CPU, of a core",
                "server memory, MB",
            ),
            [_streamed(each) for each in report.streamed],
        ),
        Section(
            "HTTP: clients that came and vanished",
            ("store", "clients", "memory before, MB", "after", "files open before", "after"),
            [
                [
                    TITLES[each.store],
                    f"{each.clients:,}",
                    f"{each.memory_before_mb:.0f}",
                    f"{each.memory_after_mb:.0f}",
                    str(each.files_before),
                    str(each.files_after),
                ]
                for each in report.vanished
            ],
        ),
        Section(
            "HTTP: pages over many jobs",
            ("", "store", "jobs", "asked first, ms", "p50, ms", "p99, ms", "size, KB"),
            [_paged(each) for each in report.paged],
        ),
    ]
    return [table for table in tables if table.lines]


def about(report: Report) -> str:
    """The machine and the versions, and what is missing."""
    lines = report.told()
    lines += [f"Skipped: {name} ({why.splitlines()[0]})." for name, why in report.skipped.items()]
    lines += [f"Trouble: {trouble.splitlines()[0]}" for trouble in report.trouble]
    return "\n".join(lines)


# -- cells --------------------------------------------------------------------------------------


def _asked(each: Asked) -> list[str]:
    return [
        each.what,
        TITLES[each.store],
        str(each.connections),
        each.generator,
        f"{each.rate:,.0f}",
        f"{each.rate * each.jobs:,.0f}" if each.jobs else NONE,
        _ms(each.p50_ms),
        _ms(each.p99_ms),
        f"{each.server_cpu_ms:.2f}",
        NONE if each.store_cpu_ms is None else f"{each.store_cpu_ms:.2f}",
        f"{each.requests:,}",
        f"{each.failed:,}",
    ]


def _streamed(each: Streamed) -> list[str]:
    return [
        each.what,
        TITLES[each.store],
        f"{each.clients:,}",
        _ms(each.p50_ms),
        _ms(each.p99_ms),
        NONE if each.end_p99_ms is None else _ms(each.end_p99_ms),
        str(each.missed),
        f"{each.cpu_share:.0%}",
        f"{each.memory_mb:.0f}",
    ]


def _paged(each: Paged) -> list[str]:
    ms = (each.first_ms, each.p50_ms, each.p99_ms)
    return [_page(each), TITLES[each.store], f"{each.jobs:,}", *map(_ms, ms), f"{each.kb:.0f}"]


def _page(each: Paged) -> str:
    return f"`{each.path}`" + (f", page {each.page:,}" if each.page > 1 else "")


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _met(met: bool) -> str:
    return "met" if met else "NOT MET"
