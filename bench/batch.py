"""Batches: the same study through us and through what people use for it, and very many units through us alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

import servers
from servers import Postgres, ServerMissing

from . import batch_scale, batch_study, environments
from .batch_scale import Scaled
from .batch_study import Studied
from .environments import InstallFailed
from .peers.studies.catalog import STUDY_OURS, STUDY_PEERS, StudySystem
from .queues import Tell
from .runs import Run, begun

SCENARIOS = ("batch_study", "batch_100k")
STORES = {"mainstay-sqlite": "SQLite", "mainstay-postgresql": "PostgreSQL"}
"""Of the second scenario, called as in the comparison with queues."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much work each scenario does."""

    units: int = 2000
    """Of the study that everyone runs."""
    scale: tuple[int, ...] = (10_000, 100_000)
    """Units that do nothing; the sizes tell whether memory grows with them."""
    share: float = 0.01
    """Part of the outputs that is deleted."""


class Report(Run, kw_only=True):
    """What a run found, as it is kept."""

    sizes: Sizes
    skipped: dict[str, str] = msgspec.field(default_factory=dict)
    studies: list[Studied] = msgspec.field(default_factory=list)
    scales: list[Scaled] = msgspec.field(default_factory=list)

    @property
    def trouble(self) -> list[str]:
        found = [*(each.trouble for each in self.studies), *(each.trouble for each in self.scales)]
        return [text for texts in found for text in texts]


def systems() -> dict[str, StudySystem | str]:
    """By name: those that run the study, and our stores for very many units."""
    return {**{system.name: system for system in (*STUDY_PEERS, *STUDY_OURS)}, **STORES}


def measure(chosen: Sequence[str], scenarios: Sequence[str], sizes: Sizes, tell: Tell) -> Report:
    """Run the scenarios. What cannot be set up is skipped, with the reason."""
    began = time.monotonic()
    with servers.folder("mainstay-bench-") as folder:
        report = Report(
            **begun(folder),
            sizes=sizes,
        )
        if "batch_study" in scenarios:
            for system in (*STUDY_PEERS, *STUDY_OURS):
                if system.name in chosen:
                    _study(system, folder, report, tell)
        if "batch_100k" in scenarios:
            for store in STORES:
                if store in chosen:
                    _scales(store, folder, report, tell)
    report.took_s = round(time.monotonic() - began, 1)
    return report


def _study(system: StudySystem, folder: Path, report: Report, tell: Tell) -> None:
    tell(f"setting up {system.title}")
    try:
        python = environments.python_of(system.requirements)
    except InstallFailed as error:
        report.skipped[system.name] = str(error)
        return
    found = Studied(
        name=system.name,
        title=system.title,
        version=environments.version(python, system.package),
        setting=system.setting,
        lacks=system.lacks,
        units=report.sizes.units,
    )
    report.studies.append(found)
    batch_study.measure(system, python, folder / system.name, found, report.sizes.share, tell)


def _scales(store: str, folder: Path, report: Report, tell: Tell) -> None:
    for units in report.sizes.scale:
        own = folder / f"{store}-{units}"
        try:
            with _url(store, own, report) as url:
                report.scales.append(batch_scale.measure(STORES[store], url, units, own, report.sizes.share, tell))
        except ServerMissing as error:
            report.skipped[store] = str(error)
            return


@contextlib.contextmanager
def _url(store: str, folder: Path, report: Report) -> Iterator[str]:
    """An empty store: PostgreSQL with its defaults, so every commit is synced, in a server of its own."""
    if store == "mainstay-sqlite":
        yield f"sqlite:///{folder}/jobs.db"
        return
    place = folder.with_name(f"{folder.name}-server")
    place.mkdir(mode=0o755)
    server = Postgres(place)
    try:
        report.versions["postgresql"] = server.version
        yield f"{server.database('bench')}?auto_migrate=on"
    finally:
        server.stop()
