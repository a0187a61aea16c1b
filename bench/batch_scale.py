"""A study of very many units that do nothing: what is left is what a batch itself costs.

Submitter, worker and planner are programs of their own, new for each size, so that each has its own peak of memory.
When a batch did what is read from its events.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from .environments import ROOT
from .queues import Tell
from .stands import Workers

_MODULE = "bench.peers.studies.mainstay_study"
_LOG_LINES = 12


class ScaleFailed(Exception):
    """A program of the run did not do its part."""


class Scaled(msgspec.Struct, kw_only=True):
    """One store, one size. Seconds; megabytes are the peak of one process."""

    store: str
    units: int
    submit_s: float | None = None
    """The manifest is made and stored, then the job."""
    planning_s: float | None = None
    """From the claim to the last row of a unit. Other engines are at work on the first ones by then."""
    run_s: float | None = None
    """From the claim until the last unit is done: the planning included."""
    cpu_ms: float | None = None
    """Processor time of the worker a unit, until the batch has succeeded; with SQLite, the store is inside of it."""
    validation_s: float | None = None
    again_s: float | None = None
    """The same submitted again with everything there, until it has succeeded."""
    plan_whole_s: float | None = None
    """What a resume would run, with everything there, each file read: nothing."""
    deleted: int = 0
    plan_damaged_s: float | None = None
    planned: int = 0
    """Units that it would run after so many outputs were deleted; the two should be the same."""
    repair_s: float | None = None
    """The same submitted again after that, until it has succeeded."""
    submitter_mb: float = 0.0
    planner_mb: float = 0.0
    engine_mb: float = 0.0
    """The largest process of the worker, after all of this."""
    trouble: list[str] = []

    @property
    def rate(self) -> float | None:
        return self.units / self.run_s if self.run_s else None


def measure(store: str, url: str, units: int, folder: Path, share: float, tell: Tell) -> Scaled:
    """A batch of so many units in an empty store."""
    found = Scaled(store=store, units=units)
    folder.mkdir()
    # not synced: it is the jobs that are measured here, and the disk would be most of it
    env = {"BENCH_URL": url, "BENCH_OUTPUTS": f"file://{folder}/outputs?sync=off"}
    stand = _Stand({**os.environ, "PYTHONPATH": str(ROOT), **env}, folder)

    def told(what: str) -> None:
        tell(f"batch of {units:,} units on {store}: {what}")

    try:
        _steps(stand, found, share, told)
    except ScaleFailed as error:
        found.trouble.append(f"{units:,} units on {store}: {error}")
    finally:
        stand.worker.kill()
        shutil.rmtree(folder / "outputs", ignore_errors=True)
    return found


def _steps(stand: _Stand, found: Scaled, share: float, tell: Callable[[str], None]) -> None:
    tell("submitting")
    submitted = stand.ask("submit", str(found.units))
    job, found.units = submitted["id"], submitted["units"]
    found.submit_s, found.submitter_mb = submitted["seconds"], submitted["peak_mb"]

    tell("running")
    over = stand.settled(job)
    found.cpu_ms = stand.worker.cpu_s() / found.units * 1000
    at_ms = over["at_ms"]
    found.planning_s = (over["planned_ms"] - at_ms["running"]) / 1000
    found.run_s = (at_ms["finalizing"] - at_ms["running"]) / 1000
    found.validation_s = (at_ms["succeeded"] - at_ms["validating"]) / 1000

    tell("planning a resume, everything there")
    planned = stand.ask("plan", job)
    found.plan_whole_s, found.planner_mb = planned["seconds"], planned["peak_mb"]
    if planned["units"]:
        raise ScaleFailed(f"a resume would run {planned['units']} units, and everything is there")

    tell("submitting again")
    found.again_s = stand.whole_s(found.units)

    found.deleted = stand.delete(share)
    tell("planning a resume, some deleted")
    planned = stand.ask("plan", job)
    found.plan_damaged_s, found.planned = planned["seconds"], planned["units"]
    if found.planned != found.deleted:
        raise ScaleFailed(f"a resume would run {found.planned} units, and {found.deleted} outputs were deleted")

    tell("submitting again, some deleted")
    found.repair_s = stand.whole_s(found.units)
    found.engine_mb = max(stand.worker.peaks_mb())


class _Stand:
    """The worker, and whoever asks something of the batch."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self._env = env
        self._folder = folder
        program = str(Path(sys.executable).with_name("mainstay"))
        command = [program, "worker", f"{_MODULE}:app", "--processes", "2", "--log-level", "warning"]
        self.worker = Workers([command], env, folder)

    def ask(self, *command: str) -> Any:
        """One step by a program of its own, as long as there is a worker."""
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, *command],
            env=self._env,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said, error = self._awaited(process)
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            raise ScaleFailed(f"`{command[0]}` ended with {process.returncode}:\n{_tail(error)}")
        return json.loads(said)

    def _awaited(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        while True:
            try:
                return process.communicate(timeout=1)
            except subprocess.TimeoutExpired:
                if self.worker.died():
                    raise self._failed("the worker ended too early") from None

    def settled(self, job: str) -> Any:
        over = self.ask("settled", job)
        if over["status"] != "succeeded":
            raise self._failed(f"the batch is {over['status']} ({over['reason']})")
        return over

    def whole_s(self, units: int) -> float:
        """Submit the same again, until it has succeeded."""
        submitted = self.ask("submit", str(units))
        over = self.settled(submitted["id"])
        seconds: float = submitted["seconds"] + (over["at_ms"]["succeeded"] - over["created_ms"]) / 1000
        return seconds

    def _failed(self, what: str) -> ScaleFailed:
        log = (self._folder / "worker.log").read_text(errors="replace")
        return ScaleFailed(f"{what}; its worker said last:\n{_tail(log)}")

    def delete(self, share: float) -> int:
        """Delete that part of the outputs."""
        files = sorted((self._folder / "outputs").rglob("result.json"))
        victims = random.Random(7).sample(files, max(1, round(share * len(files))))
        for path in victims:
            path.unlink()
        return len(victims)


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-_LOG_LINES:])
