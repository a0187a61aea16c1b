"""The figures of the soaks: kept as JSON, shown as a table, written into the documentation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from .run import Soak

KEPT = Path(__file__).resolve().parent / "results"
_TITLES = {"postgresql": "PostgreSQL", "redis": "Redis", "sqlite": "SQLite"}


def save(found: Soak, folder: Path = KEPT) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.store}.json"
    kept = {**msgspec.to_builtins(found), "jobs_per_s": round(found.rate), "right": found.right}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
    return path


def load(folder: Path = KEPT) -> list[Soak]:
    """Those that were kept, by name."""
    return [msgspec.json.decode(path.read_bytes(), type=Soak) for path in sorted(folder.glob("*.json"))]


def headings(soaks: Sequence[Soak]) -> list[str]:
    return ["", *(_TITLES.get(each.store, each.store) for each in soaks)]


def lines(soaks: Sequence[Soak]) -> list[list[str]]:
    """One line per figure, one column per store."""
    figures: dict[str, Callable[[Soak], str]] = {
        "server": lambda s: s.server or "given",
        "jobs": lambda s: f"{s.plan.jobs:,}",
        "engine processes": lambda s: str(s.plan.engines),
        "engines killed": lambda s: str(s.kills.get("engine", 0)),
        "supervisors killed": lambda s: str(s.kills.get("supervisor", 0)),
        "duration": lambda s: f"{s.took_s:,.0f} s",
        "jobs a second, kills included": lambda s: f"{s.rate:,.0f}",
        "taken again": lambda s: f"{s.account.again:,}",
        "of these, had begun when their process died": lambda s: f"{s.account.crashes:,}",
        "**lost**": lambda s: f"**{s.account.lost}**",
        "**completed twice**": lambda s: f"**{s.account.doubled}**",
        "**found by `mainstay check`**": lambda s: f"**{s.account.violations}**",
    }
    return [[name, *(figure(each) for each in soaks)] for name, figure in figures.items()]


def about(soaks: Sequence[Soak]) -> str:
    """Where and when, in prose."""
    return "\n".join(
        f"- {_TITLES.get(each.store, each.store)}, measured on {each.at}: {each.machine}, load average before "
        f"{each.load_before}. {each.durability[0].upper()}{each.durability[1:].rstrip('.')}."
        for each in soaks
    )
