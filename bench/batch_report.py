"""The tables of the batch suite, for the terminal and for the documentation. A peer that is ahead is named."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import msgspec

from .batch import Report
from .batch_scale import Scaled
from .batch_study import Studied
from .peers.studies.catalog import US
from .report import NONE, Section
from .verdicts import WORSE, Verdict

KEPT = Path(__file__).resolve().parent / "results" / "batch.json"

MEASURES: tuple[tuple[str, str, Callable[[Studied], float | None]], ...] = (
    ("first run, units/s", "faster", lambda found: found.rate),
    ("CPU, ms a unit", "smaller", lambda found: found.cpu_ms),
    ("everything there, s", "sooner", lambda found: found.again_s),
    ("some deleted, s", "sooner", lambda found: found.repair_s),
)


def load(path: Path = KEPT) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def save(report: Report, path: Path = KEPT) -> None:
    """The verdicts go with their ratios, for whoever reads only the file."""
    kept = msgspec.to_builtins(report)
    kept["verdicts"] = [
        {**msgspec.to_builtins(verdict), "ratio": round(verdict.ratio, 2)} for verdict in verdicts(report)
    ]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


def verdicts(report: Report) -> list[Verdict]:
    """Each of ours beside each peer."""
    ours = [found for found in report.studies if found.name.startswith(US)]
    peers = [found for found in report.studies if not found.name.startswith(US)]
    return [
        Verdict(store=us.title, measure=measure, better=better, ours=mine, peer=peer.title, theirs=theirs)
        for us in ours
        for peer in peers
        for measure, better, read in MEASURES
        if (mine := read(us)) is not None and (theirs := read(peer)) is not None
    ]


def sections(report: Report) -> list[Section]:
    """Every table; those without a row are left out."""
    found = verdicts(report)
    tables = [
        Section(
            f"The same study: {report.sizes.units:,} units of about a millisecond, two processes",
            (
                "",
                "first run, units/s",
                "CPU, ms a unit",
                "everything there, s",
                "some deleted, s",
                "made again",
                "truncated output",
                "flipped bit",
                "one unit, s",
            ),
            [_studied(each) for each in report.studies],
        ),
        *(
            Section(
                f"{us} beside each",
                ("", *(measure for measure, _, _ in MEASURES)),
                [[f"{us} beside {peer}", *(each.text for each in row)] for peer, row in _by_peer(found, us)],
            )
            for us in dict.fromkeys(each.store for each in found)
        ),
        Section(
            "Units that do nothing, seconds",
            (
                "",
                "units",
                "submit",
                "planning",
                "planned and run",
                "units/s",
                "worker CPU, ms a unit",
                "validation",
                "resume planned, everything there",
                "resume planned, 1 % deleted",
                "submitted again, everything there",
                "submitted again, 1 % deleted",
            ),
            [_scaled(each) for each in report.scales],
        ),
        Section(
            "Units that do nothing, peak memory of a process, MB",
            ("", "units", "submitter", "engine", "planner of a resume"),
            [
                [each.store, f"{each.units:,}", *map(_mb, (each.submitter_mb, each.engine_mb, each.planner_mb))]
                for each in report.scales
            ],
        ),
        Section(
            "What was run, and what it leaves to others",
            ("", "version", "how", "beside Mainstay"),
            [[each.title, each.version, each.setting, each.lacks] for each in report.studies],
        ),
    ]
    return [table for table in tables if table.lines]


def about(report: Report) -> str:
    """The machine and the versions, what the tables come to, and what is missing."""
    lines = report.told()
    lines += [told for told in (peers_ahead(report), damage(report), *_growths(report)) if told]
    lines += [f"Skipped: {name} ({why.splitlines()[0]})." for name, why in report.skipped.items()]
    lines += [f"Trouble: {_shortened(trouble)}" for trouble in report.trouble]
    return "\n".join(lines)


def peers_ahead(report: Report) -> str:
    """Where a peer is better than our defaults, in a sentence."""
    found = verdicts(report)
    if not found:
        return ""
    ahead = [
        f"{each.measure} ({each.peer}; Mainstay is {each.text})"
        for each in found
        if each.store == found[0].store and each.text.endswith(tuple(WORSE.values()))
    ]
    return f"A peer is ahead in: {'; '.join(ahead)}." if ahead else "No peer is ahead in any of these."


def damage(report: Report) -> str:
    """Who noticed an output that was damaged."""
    if not (tried := [found for found in report.studies if found.noticed]):
        return ""
    blind = [found.title for found in tried if "no" in found.noticed.values()]
    seeing = [found.title for found in tried if "no" not in found.noticed.values()]
    said = [f"noticed by {'; '.join(seeing)}"] if seeing else []
    said += [f"not noticed by {'; '.join(blind)}"] if blind else []
    return f"Damage to an output that is still there was {', '.join(said)}."


def _growths(report: Report) -> list[str]:
    """What the largest study took more than the smallest, of each store."""
    lines = []
    for store, group in groupby(report.scales, key=lambda each: each.store):
        sizes = list(group)
        small, large = sizes[0], sizes[-1]
        if small is not large and small.engine_mb and large.engine_mb:
            more = (
                f"{large.engine_mb - small.engine_mb:+.0f} MB in an engine",
                f"{large.submitter_mb - small.submitter_mb:+.0f} MB in the submitter",
                f"{large.planner_mb - small.planner_mb:+.0f} MB in the planner of a resume",
            )
            lines.append(f"{store}, {large.units:,} units instead of {small.units:,}: {', '.join(more)}.")
    return lines


def _shortened(text: str) -> str:
    """What happened, and of what was said the end, where the error is."""
    first, *rest = text.splitlines()
    return f"{first} {rest[-1].strip()}" if rest else first


# -- cells --------------------------------------------------------------------------------------


def _by_peer(found: list[Verdict], us: str) -> list[tuple[str, list[Verdict]]]:
    mine = [each for each in found if each.store == us]
    rows = [(peer, list(row)) for peer, row in groupby(mine, key=lambda each: each.peer)]
    # one that failed half way has no whole row
    return [(peer, row) for peer, row in rows if len(row) == len(MEASURES)]


def _studied(found: Studied) -> list[str]:
    made = f"{found.repair_made} of {found.deleted}" if found.repair_s is not None else NONE
    if found.again_made:
        made += f"; {found.again_made} that were there"
    return [
        found.title,
        NONE if found.rate is None else f"{found.rate:,.0f}" if found.rate >= 100 else f"{found.rate:.1f}",
        NONE if found.cpu_ms is None else f"{found.cpu_ms:.1f}",
        _s(found.again_s),
        _s(found.repair_s),
        made,
        _noticed(found, "truncated"),
        _noticed(found, "flipped"),
        _s(found.one_s),
    ]


def _noticed(found: Studied, kind: str) -> str:
    return {"mended": "noticed, made again", "told": "noticed, reported", "no": "not noticed"}.get(
        found.noticed.get(kind, ""), NONE
    )


def _scaled(found: Scaled) -> list[str]:
    return [
        found.store,
        f"{found.units:,}",
        _s(found.submit_s),
        _s(found.planning_s),
        _s(found.run_s),
        NONE if found.rate is None else f"{found.rate:,.0f}",
        NONE if found.cpu_ms is None else f"{found.cpu_ms:.1f}",
        _s(found.validation_s),
        _s(found.plan_whole_s),
        _s(found.plan_damaged_s),
        _s(found.again_s),
        _s(found.repair_s),
    ]


def _s(value: float | None) -> str:
    return (
        NONE if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
    )


def _mb(value: float) -> str:
    return f"{value:.0f}" if value else NONE
