"""The tables of the load suite, for the terminal and for the documentation. A generator that is ahead is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from .load import Found, Report
from .load_limits import MOST_MB
from .load_runs import Ran
from .peers.load.catalog import SCENARIOS as WORK
from .report import NONE, Section
from .verdicts import WORSE, Verdict

KEPT = Path(__file__).resolve().parent / "results" / "load.json"

GET_BARS = {"wrk": 0.5, "hey": 1.0, "k6": 3.0, "locust": 10.0, "hyperscale": 10.0}
"""How many times as many requests for a second of the generator's processor time we set out to make."""


def load(path: Path = KEPT) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def save(report: Report, path: Path = KEPT) -> None:
    """The medians and the verdicts go with the rounds, for whoever reads only the file."""
    kept = msgspec.to_builtins(report)
    for system, told in zip(report.systems, kept["systems"], strict=True):
        for case, cell in zip(system.cases, told["cases"], strict=True):
            if case.rounds:
                cell["median"] = {name: round(case.median(read)) for name, read in MEDIANS.items()}
    kept["verdicts"] = [
        {**msgspec.to_builtins(verdict), "ratio": round(verdict.ratio, 2)} for verdict in verdicts(report)
    ]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


MEDIANS: dict[str, Callable[[Ran], float]] = {
    "per_generator_cpu_s": lambda ran: ran.per_generator_s,
    "per_cpu_s_of_all_processes": lambda ran: ran.per_all_s,
    "per_cpu_s_of_whole_command": lambda ran: ran.per_command_s,
    "rate": lambda ran: ran.rate,
}


def verdicts(report: Report) -> list[Verdict]:
    """Ourselves beside each, for a second of the generator's processor time."""
    ours = next((found for found in report.systems if found.ours), None)
    found = []
    for scenario in WORK if ours else ():
        for connections in report.sizes.connections:
            mine = ours.case(scenario, connections) if ours else None
            for peer in report.systems:
                theirs = peer.case(scenario, connections)
                if mine is None or theirs is None or peer.ours:
                    continue
                verdict = Verdict(
                    store=scenario,
                    measure=f"{WORK[scenario]}, {connections} connections",
                    better="faster",
                    ours=mine.median(MEDIANS["per_generator_cpu_s"]),
                    peer=peer.title,
                    theirs=theirs.median(MEDIANS["per_generator_cpu_s"]),
                )
                found.append(_judged(verdict, scenario, peer))
    return found


def _judged(verdict: Verdict, scenario: str, peer: Found) -> Verdict:
    """With what we set out to keep, and whether we do."""
    if scenario != "get":
        if not peer.scriptable:
            return verdict
        return msgspec.structs.replace(verdict, bar="ahead", met=verdict.ratio > 1)
    wanted = GET_BARS[peer.name]
    if wanted == 1:
        return msgspec.structs.replace(verdict, bar="ahead", met=verdict.ratio > 1)
    bar = f"at least {wanted:g}x" if wanted > 1 else f"at least {wanted:g} of it"
    return msgspec.structs.replace(verdict, bar=bar, met=verdict.ratio >= wanted)


def sections(report: Report) -> list[Section]:
    """Every table; those without a row are left out."""
    connections = report.sizes.connections
    tables = [
        *(
            Section(
                f"{WORK[scenario]}: requests for a second of the generator's processor time",
                (
                    "",
                    *(f"{n} connections" for n in connections),
                    *(f"Mainstay is, {n}" for n in connections),
                    *(f"requests a second, {n}" for n in connections),
                    "requests",
                    "failed",
                ),
                [
                    _line(report, found, scenario)
                    for found in report.systems
                    if any(found.case(scenario, n) for n in connections)
                ],
            )
            for scenario in WORK
        ),
        Section(
            "What we set out to keep",
            ("", "beside", "Mainstay", "", "Mainstay is", "wanted"),
            [
                [
                    each.measure,
                    each.peer,
                    f"{each.ours:,.0f}",
                    f"{each.theirs:,.0f}",
                    each.text,
                    f"{each.bar}: {'met' if each.met else 'NOT MET'}",
                ]
                for each in verdicts(report)
                if each.bar
            ],
        ),
        Section(
            f"Beside the loop: small GET, {connections[0]} connections",
            (
                "",
                "requests a CPU second, all processes",
                "with the start of the command",
                "first request after, s",
                "peak memory of a process, MB",
            ),
            [line for found in report.systems if (line := _beside(found, connections[0]))],
        ),
        Section(
            "Very many users in one process",
            ("users", "connections", "requests", "failed", "peak memory, MB", f"wanted: under {MOST_MB} MB"),
            [
                [
                    f"{crowd.users:,}",
                    f"{crowd.connections:,}",
                    f"{crowd.requests:,}",
                    f"{crowd.failed:,}",
                    f"{crowd.generator_mb:.0f}",
                    "met" if crowd.met else "NOT MET",
                ]
            ]
            if (crowd := report.crowd) and crowd.requests
            else [],
        ),
        Section(
            "What was run, and what it leaves to others",
            ("", "version", "how", "beside Mainstay"),
            [[each.title, each.version, each.setting, each.lacks] for each in report.systems],
        ),
    ]
    return [table for table in tables if table.lines]


def about(report: Report) -> str:
    """The machine and the versions, what the tables come to, and what is missing."""
    lines = report.told()
    if told := peers_ahead(report):
        lines.append(told)
    lines += [f"Skipped: {name} ({why.splitlines()[0]})." for name, why in report.skipped.items()]
    lines += [f"Trouble: {trouble.splitlines()[0]}" for trouble in report.trouble]
    return "\n".join(lines)


def peers_ahead(report: Report) -> str:
    """Where another generator makes more requests for the same processor time, in a sentence."""
    if not (found := verdicts(report)):
        return ""
    ahead = [
        f"{each.measure} ({each.peer}; Mainstay is {each.text})"
        for each in found
        if each.text.endswith(tuple(WORSE.values()))
    ]
    return f"A peer is ahead in: {'; '.join(ahead)}." if ahead else "No peer is ahead in any of these."


# -- cells --------------------------------------------------------------------------------------


def _line(report: Report, found: Found, scenario: str) -> list[str]:
    cases = [found.case(scenario, n) for n in report.sizes.connections]
    beside = {(each.store, each.measure, each.peer): each.text for each in verdicts(report)}
    rounds = [ran for case in cases if case for ran in case.rounds]
    return [
        found.title,
        *(f"{case.median(MEDIANS['per_generator_cpu_s']):,.0f}" if case else NONE for case in cases),
        *(
            beside.get((scenario, f"{WORK[scenario]}, {n} connections", found.title), NONE)
            for n in report.sizes.connections
        ),
        *(f"{case.median(MEDIANS['rate']):,.0f}" if case else NONE for case in cases),
        f"{sum(ran.requests for ran in rounds):,}",
        f"{sum(ran.failed for ran in rounds):,}",
    ]


def _beside(found: Found, connections: int) -> list[str] | None:
    if not (case := found.case("get", connections)):
        return None
    return [
        found.title,
        f"{case.median(MEDIANS['per_cpu_s_of_all_processes']):,.0f}",
        f"{case.median(MEDIANS['per_cpu_s_of_whole_command']):,.0f}",
        f"{case.median(lambda ran: ran.start_s):.2f}",
        f"{case.median(lambda ran: ran.peak_mb):.0f}",
    ]
