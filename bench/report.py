"""The tables of a run, for the terminal and for the documentation. Rows say who is better, also when it is not us."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from .fleet import Report
from .queues import Drain, Found, Kill, Latency

KEPT = Path(__file__).resolve().parent / "results" / "queues.json"
US = "mainstay"
NONE = "-"


class Section(msgspec.Struct, frozen=True):
    """One table."""

    title: str
    headings: Sequence[str]
    lines: list[list[str]]


def load(path: Path = KEPT) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def save(report: Report, path: Path = KEPT) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def sections(report: Report) -> list[Section]:
    """Every table; those without a row are left out."""
    rated = [found for found in report.systems if found.submit_one or found.one]
    waited = [found for found in report.systems if found.idle]
    killed = [found for found in report.systems if found.kill]
    tables = [
        Section(
            "Mainstay beside the best peer", ("measure", "Mainstay", "best peer", "", "Mainstay is"), _verdicts(report)
        ),
        Section(
            "Rates, jobs a second",
            (
                "",
                "submit, one a call",
                "submit, bulk",
                "worked off, 1 process",
                "worked off, 2 processes",
                "worker CPU, us a job",
                "memory, MB",
            ),
            [_rates(found) for found in rated],
        ),
        Section(
            "From submit to start, ms",
            ("", "idle p50", "idle p99", "under load p50", "under load p99"),
            [[found.title, *_latency(found.idle), *_latency(found.load)] for found in waited],
        ),
        Section(
            "The worker is killed in the middle of a job",
            ("", "the job is run again", "jobs queued behind it"),
            [[found.title, *_kill(found.kill)] for found in killed if found.kill],
        ),
        Section(
            "What was run",
            ("", "version", "store", "how"),
            [[found.title, found.version, found.store, found.setting] for found in report.systems],
        ),
    ]
    return [table for table in tables if table.lines]


def about(report: Report) -> str:
    """The machine and the versions, in a sentence or two; and what is missing."""
    facts = ", ".join([*report.machine.values(), *(f"{name} {version}" for name, version in report.versions.items())])
    lines = [f"Measured on {report.at} in {report.took_s / 60:.0f} minutes: {facts}."]
    if report.load_before > 0.5:
        lines.append(f"The machine was busy with other work when it began (load average {report.load_before}).")
    lines += [f"Skipped: {name} ({why.splitlines()[0]})." for name, why in report.skipped.items()]
    lines += [f"Trouble: {trouble.splitlines()[0]}" for found in report.systems for trouble in found.trouble]
    return "\n".join(lines)


def peers_ahead(report: Report) -> str:
    """Where a peer is better than we are, in a sentence."""
    ahead = [
        f"{measure} ({who}; Mainstay is {is_})" for measure, _, who, _, is_ in _verdicts(report) if is_.endswith(_WORSE)
    ]
    return f"A peer is ahead in: {'; '.join(ahead)}." if ahead else "No peer is ahead in any of these."


# -- cells --------------------------------------------------------------------------------------


def _rates(found: Found) -> list[str]:
    memory, cpu_us = _best_memory(found), _best_cpu(found)
    return [
        found.title,
        _rate(max(found.submit_one, default=None)),
        _rate(max(found.submit_bulk, default=None)),
        _drains(found.one),
        _drains(found.two),
        NONE if cpu_us is None else f"{cpu_us:.0f}",
        NONE if memory is None else f"{memory:.0f}",
    ]


def _drains(drains: list[Drain]) -> str:
    if not drains:
        return NONE
    cell = _rate(max(drain.started for drain in drains))
    if (committed := max((drain.committed or 0 for drain in drains), default=0)) > 0:
        cell += f" started, {_rate(committed)} committed"
    if lost := sum(drain.lost for drain in drains):
        cell += f"; {lost} lost"
    if repeated := sum(drain.repeated for drain in drains):
        cell += f"; {repeated} run twice"
    return cell


def _latency(latency: Latency | None) -> list[str]:
    if latency is None:
        return [NONE, NONE]
    if not latency.samples:
        return ["never", "never"]
    lost = f" ({latency.lost} never)" if latency.lost else ""
    return [_ms(latency.p50), _ms(latency.p99) + lost]


def _kill(kill: Kill) -> list[str]:
    late = f"not within {kill.watched_s:g} s"
    waits = [wait for wait in kill.bystanders_s if wait is not None]
    if len(waits) < len(kill.bystanders_s):
        behind = f"{len(kill.bystanders_s) - len(waits)} of {len(kill.bystanders_s)} {late}"
    else:
        behind = f"after {max(waits):.1f} s" if max(waits, default=0) > 0 else "had run before"
    return [late if kill.rerun_s is None else f"after {kill.rerun_s:.1f} s", behind]


def _rate(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


# -- who is better ------------------------------------------------------------------------------

Measure = Callable[[Found], float | None]


def _best_done(drains: list[Drain]) -> float | None:
    """To the last commit where that is known: what is started is not yet done."""
    return max((drain.committed or drain.started for drain in drains), default=None)


def _best_memory(found: Found) -> float | None:
    return min((drain.rss_mb for drain in found.one), default=None)


def _best_cpu(found: Found) -> float | None:
    return min((drain.cpu_us for drain in found.one if drain.cpu_us), default=None)


def _wait(latency: Latency | None, field: str) -> float | None:
    return getattr(latency, field) if latency and latency.samples else None


MEASURES: tuple[tuple[str, str, Measure], ...] = (
    ("submit, one a call, jobs/s", "faster", lambda found: max(found.submit_one, default=None)),
    ("submit, bulk, jobs/s", "faster", lambda found: max(found.submit_bulk, default=None)),
    ("worked off, 1 process, jobs/s", "faster", lambda found: _best_done(found.one)),
    ("worked off, 2 processes, jobs/s", "faster", lambda found: _best_done(found.two)),
    ("worker CPU, us a job", "smaller", _best_cpu),
    ("idle pickup p50, ms", "sooner", lambda found: _wait(found.idle, "p50")),
    (
        "idle pickup p50, ms, of those that run a killed job again",
        "sooner",
        lambda found: _wait(found.idle, "p50") if found.kill and found.kill.rerun_s is not None else None,
    ),
    ("idle pickup p99, ms", "sooner", lambda found: _wait(found.idle, "p99")),
    ("pickup under load p50, ms", "sooner", lambda found: _wait(found.load, "p50")),
    ("pickup under load p99, ms", "sooner", lambda found: _wait(found.load, "p99")),
    ("memory of one worker, MB", "smaller", _best_memory),
    ("killed job run again, s", "sooner", lambda found: found.kill.rerun_s if found.kill else None),
)
_OPPOSITE = {"faster": "slower", "sooner": "later", "smaller": "larger"}
_WORSE = tuple(_OPPOSITE.values())


def _verdicts(report: Report) -> list[list[str]]:
    us = next((found for found in report.systems if found.name == US), None)
    if us is None:
        return []
    lines = []
    for title, better, measure in MEASURES:
        values = [(value, found.title) for found in report.systems if (value := measure(found)) is not None]
        theirs = [pair for pair in values if pair[1] != us.title]
        mine = measure(us)
        if mine is None or not theirs:
            continue
        more_is_better = better == "faster"
        value, who = max(theirs) if more_is_better else min(theirs)
        lines.append([title, _number(mine), who, _number(value), verdict(mine, value, better)])
    return lines


def verdict(mine: float, theirs: float, better: str) -> str:
    """
    >>> verdict(5000, 1000, "faster"), verdict(4.0, 2.0, "sooner"), verdict(1.0, 1.0, "smaller")
    ('5.0x faster', '2.0x later', 'the same')
    """
    ratio = mine / theirs if better == "faster" else theirs / mine
    if f"{ratio:.1f}" == "1.0":
        return "the same"
    return f"{ratio:.1f}x {better}" if ratio > 1 else f"{1 / ratio:.1f}x {_OPPOSITE[better]}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
