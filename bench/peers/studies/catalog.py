"""Every system that runs the study: its command, what it needs, what it leaves to others.

Words in braces are filled in: `{bin}` the environment's programs, `{here}` this folder, `{folder}` where the outputs
go, `{own}` a folder for whatever else it keeps, `{units}` how many, `{phase}` what is asked: the study for the `first`
time, `again`, or its `repair`. The peers do the same in each phase.
"""

from __future__ import annotations

import msgspec

US = "mainstay"
"""How the names of our own systems begin."""


class StudySystem(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the report."""

    name: str
    title: str
    package: str
    setting: str
    lacks: str = ""
    """What it does not do of what Mainstay does, in a few words."""
    requirements: str | None = None
    """Its environment; None is ours."""
    command: tuple[str, ...]
    worker: tuple[str, ...] = ()
    """What is at hand before the first command and after the last; the phase `ready` waits for it."""
    env: dict[str, str] = {}

    def filled(self, parts: tuple[str, ...], **words: str) -> tuple[list[str], dict[str, str]]:
        """A command, and what is added to its environment."""
        return (
            [part.format(**words) for part in parts],
            {name: value.format(**words) for name, value in self.env.items()},
        )


_MODULES = "bench.peers.studies"
_SCRIPT_LACKS = "no record, retries, checksums or atomic writes; one machine"


def _snakemake(name: str, title: str, workflow: str, setting: str, *more: str) -> StudySystem:
    return StudySystem(
        name=name,
        title=title,
        package="snakemake",
        setting=setting,
        lacks="no checksums; retries and a record it has",
        requirements="snakemake",
        command=(
            *("{bin}/python", "-m", "snakemake", "-s", f"{{here}}/{workflow}", "--cores", "2", "--quiet", "all"),
            *more,
            *("--config", "folder={folder}", "units={units}"),
        ),
        # it keeps a cache in the user's home otherwise
        env={"XDG_CACHE_HOME": "{own}"},
    )


def _script(name: str, title: str, package: str, setting: str) -> StudySystem:
    return StudySystem(
        name=name,
        title=title,
        package=package,
        setting=setting,
        lacks=_SCRIPT_LACKS,
        requirements=package,
        command=("{bin}/python", "-m", f"{_MODULES}.{package}_study", "{folder}", "{units}"),
    )


_MAINSTAY = StudySystem(
    name="mainstay-study",
    title="Mainstay",
    package="mainstay",
    setting="SQLite, outputs in a folder, each of them synced (all defaults); a worker of 2 engines starts and stops "
    "with each command",
    command=("{bin}/python", "-m", f"{_MODULES}.mainstay_study", "study", "{phase}", "{units}"),
    env={"BENCH_URL": "sqlite:///{own}/jobs.db", "BENCH_OUTPUTS": "file://{folder}", "BENCH_WORKER": "own"},
)


STUDY_PEERS = (
    _snakemake("snakemake", "Snakemake", "shell.smk", "one rule, --cores 2, a shell command a unit"),
    _snakemake(
        "snakemake-threads",
        "Snakemake, threads",
        "threads.smk",
        "one rule, --cores 2, units called in its own process: its fastest here",
        "--force-use-threads",
    ),
    _script("joblib", "joblib", "joblib", "Parallel(n_jobs=2), a look for each file before and after"),
    _script("dask", "dask.bag", "dask", "2 processes, a look for each file before and after"),
)

STUDY_OURS = (
    _MAINSTAY,
    msgspec.structs.replace(
        _MAINSTAY,
        name="mainstay-study-unsynced",
        title="Mainstay, sync=off",
        setting="outputs not synced (`file:///...?sync=off`), like those of the peers",
        env={**_MAINSTAY.env, "BENCH_OUTPUTS": "file://{folder}?sync=off"},
    ),
    msgspec.structs.replace(
        _MAINSTAY,
        name="mainstay-study-standing",
        title="Mainstay, worker at hand",
        setting="the defaults; the worker is up before the first command, as it is where it runs all the time",
        worker=("{bin}/mainstay", "worker", f"{_MODULES}.mainstay_study:app", "--processes", "2"),
        env={**_MAINSTAY.env, "BENCH_WORKER": "standing"},
    ),
)
"""Ourselves; the peers are compared with the first."""
