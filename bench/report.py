"""The tables of a run, for the terminal and for the documentation. Rows say who is better, also when it is not us."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from .fleet import Report
from .queues import US, Drain, Found, Kill, Latency, Rates
from .verdicts import WORSE, Verdict, best_cpu, best_memory, verdicts

KEPT = Path(__file__).resolve().parent / "results" / "queues.json"
NONE = "-"
TITLES = {"redis": "Redis", "postgresql": "PostgreSQL", "sqlite": "SQLite"}


class Section(msgspec.Struct, frozen=True):
    """One table."""

    title: str
    headings: Sequence[str]
    lines: list[list[str]]


def load(path: Path = KEPT) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def save(report: Report, path: Path = KEPT) -> None:
    """The verdicts go with their ratios, for whoever reads only the file."""
    kept = msgspec.to_builtins(report)
    kept["verdicts"] = [
        {**msgspec.to_builtins(verdict), "ratio": round(verdict.ratio, 2)} for verdict in verdicts(report.systems)
    ]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


def sections(report: Report) -> list[Section]:
    """Every table; those without a row are left out."""
    rated = [found for found in report.systems if found.rates.submit_one or found.rates.one]
    far = [(found, found.far) for found in report.systems if found.far]
    waited = [found for found in report.systems if found.idle]
    killed = [found for found in report.systems if found.kill]
    found = verdicts(report.systems)
    tables = [
        *(
            Section(
                f"On {title}: Mainstay beside the best peer{'' if store != 'sqlite' else ' of any server'}",
                ("measure", "Mainstay", "best peer", "", "Mainstay is", "wanted"),
                [_line(verdict) for verdict in found if verdict.store == store],
            )
            for store, title in TITLES.items()
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
            "With 2 ms added to each round trip, jobs a second",
            ("", "submit, one a call", "submit, bulk", "worked off, 1 process", "of the rate without"),
            [_far(found, rates) for found, rates in far],
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
    lines = report.told()
    for server, wire in report.wires.items():
        trips = f"{wire.direct:.2f} ms, {wire.proxied:.2f} ms through the proxy, {wire.delayed:.2f} ms delayed"
        lines.append(f"A round trip to {TITLES[server]} takes {trips}.{_proxy_costs(report, server)}")
    lines += [f"Skipped: {name} ({why.splitlines()[0]})." for name, why in report.skipped.items()]
    lines += [f"Trouble: {trouble.splitlines()[0]}" for found in report.systems for trouble in found.trouble]
    return "\n".join(lines)


def _proxy_costs(report: Report, server: str) -> str:
    for found in report.systems:
        if found.name.startswith(US) and found.store == server and found.near and found.near.done and found.rates.done:
            return f" The proxy alone leaves Mainstay {found.near.done / found.rates.done:.0%} of its rate."
    return ""


def peers_ahead(report: Report) -> str:
    """Where a peer is better than we are, in a sentence."""
    ahead = [
        f"{TITLES[verdict.store]}, {verdict.measure} ({verdict.peer}; Mainstay is {verdict.text})"
        for verdict in verdicts(report.systems)
        if verdict.text.endswith(tuple(WORSE.values()))
    ]
    return f"A peer is ahead in: {'; '.join(ahead)}." if ahead else "No peer is ahead in any of these."


# -- cells --------------------------------------------------------------------------------------


def _line(verdict: Verdict) -> list[str]:
    wanted = f"{verdict.bar}: {'yes' if verdict.met else 'NO'}" if verdict.bar else ""
    return [verdict.measure, _number(verdict.ours), verdict.peer, _number(verdict.theirs), verdict.text, wanted]


def _rates(found: Found) -> list[str]:
    memory, cpu_us = best_memory(found), best_cpu(found)
    return [
        found.title,
        _rate(max(found.rates.submit_one, default=None)),
        _rate(max(found.rates.submit_bulk, default=None)),
        _drains(found.rates.one),
        _drains(found.rates.two),
        NONE if cpu_us is None else f"{cpu_us:.0f}",
        NONE if memory is None else f"{memory:.0f}",
    ]


def _far(found: Found, far: Rates) -> list[str]:
    near, now = found.rates.done, far.done
    return [
        found.title,
        _rate(max(far.submit_one, default=None)),
        _rate(max(far.submit_bulk, default=None)),
        _drains(far.one),
        f"{now / near:.0%}" if near and now else NONE,
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


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
