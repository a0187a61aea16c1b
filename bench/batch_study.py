"""The same study through each system: all of it, again with everything there, and after damage.

Seconds are of a whole command, from its start to its end, with the start of its interpreters: what a person waits for.
What was made anew, and whether damage was noticed, is told by the files themselves, never by what a system says.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from .environments import ROOT
from .peers.studies.catalog import StudySystem
from .queues import Tell
from .stands import Workers

HERE = ROOT / "bench" / "peers" / "studies"
_LOG_LINES = 12


class CommandFailed(Exception):
    """A command of a system ended with an error."""


Noticed = Literal["mended", "told", "no"]


class Studied(msgspec.Struct, kw_only=True):
    """All that was measured of one system. Seconds of whole commands."""

    name: str
    title: str
    version: str
    setting: str
    lacks: str = ""
    units: int
    one_s: float | None = None
    """A study of one unit: what starting and stopping costs."""
    first_s: float | None = None
    first_cpu_s: float | None = None
    """Processor time of all its processes; unlike the seconds it hardly depends on what else the machine does."""
    again_s: float | None = None
    """With everything there."""
    again_made: int = 0
    """Files that were written anew although they were there; 0 is right."""
    deleted: int = 0
    repair_s: float | None = None
    """After so many files were deleted."""
    repair_made: int = 0
    noticed: dict[str, Noticed] = {}
    """By kind of damage to one file: whether it was mended, or at least told by an error."""
    trouble: list[str] = []

    @property
    def rate(self) -> float | None:
        """Units a second of the first run."""
        return self.units / self.first_s if self.first_s else None

    @property
    def cpu_ms(self) -> float | None:
        """Processor time of the first run, a unit."""
        return None if self.first_cpu_s is None else self.first_cpu_s / self.units * 1000


class Seen(NamedTuple):
    """One file."""

    written_ns: int
    digest: bytes


def measure(system: StudySystem, python: Path, folder: Path, found: Studied, share: float, tell: Tell) -> None:
    """Everything in turn, into `found`; what was measured before a failure is kept."""
    try:
        tell(f"batch study: {system.title}, one unit")
        with _Stand(system, python, folder / "one", 1).up() as stand:
            found.one_s = stand.run("first")
        with _Stand(system, python, folder / "all", found.units).up() as stand:
            _phases(stand, found, share, tell)
    except CommandFailed as error:
        found.trouble.append(str(error))


def _phases(stand: _Stand, found: Studied, share: float, tell: Tell) -> None:
    title, rng = stand.system.title, random.Random(7)
    tell(f"batch study: {title}, {found.units} units")
    used_s = stand.cpu_s()
    found.first_s = stand.run("first")
    found.first_cpu_s = stand.cpu_s() - used_s
    whole = stand.files()
    if len(whole) != found.units:
        raise CommandFailed(f"{title} said that it is done, and {len(whole)} of {found.units} files are there")

    tell(f"batch study: {title}, everything there")
    found.again_s = stand.run("again")
    found.again_made = _made(whole, stand.files())

    tell(f"batch study: {title}, some deleted")
    whole = stand.files()
    victims = rng.sample(sorted(whole), max(1, round(share * found.units)))
    for path in victims:
        path.unlink()
    found.deleted = len(victims)
    found.repair_s = stand.run("repair")
    mended = stand.files()
    found.repair_made = _made(whole, mended)
    if not _same(whole, mended):
        raise CommandFailed(f"{title} was run after files were deleted, and not all of them are back")

    for kind, (path, damaged) in zip(("truncated", "flipped"), _damages(rng, mended), strict=True):
        tell(f"batch study: {title}, one output {kind}")
        intact = path.read_bytes()
        path.write_bytes(damaged)
        found.noticed[kind] = stand.notices(path, intact)
        path.write_bytes(intact)


def _damages(rng: random.Random, files: dict[Path, Seen]) -> Iterator[tuple[Path, bytes]]:
    """Half a file; and a file of the same size in which one bit is another."""
    first, second = rng.sample(sorted(files), 2) if len(files) > 1 else sorted(files) * 2
    data = first.read_bytes()
    yield first, data[: len(data) // 2]
    data = second.read_bytes()
    yield second, bytes([data[0] ^ 1]) + data[1:]


def _made(before: dict[Path, Seen], after: dict[Path, Seen]) -> int:
    return sum(path not in before or before[path].written_ns != seen.written_ns for path, seen in after.items())


def _same(before: dict[Path, Seen], after: dict[Path, Seen]) -> bool:
    """By what is in them."""
    return {path: seen.digest for path, seen in before.items()} == {path: seen.digest for path, seen in after.items()}


def _ended(command: list[str], env: dict[str, str], folder: Path) -> tuple[int, str]:
    """The exit code of a command, and what it said; whoever interrupts the wait ends its children as well."""
    process = subprocess.Popen(
        command,
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process.returncode, said


class _Stand:
    """One system with a folder for its outputs and one for whatever else it keeps."""

    def __init__(self, system: StudySystem, python: Path, folder: Path, units: int) -> None:
        self.system = system
        self._python = python
        self._units = units
        self._worker: Workers | None = None
        self._own, self._outputs = folder / "own", folder / "outputs"
        for made in (self._own, self._outputs):
            made.mkdir(parents=True)

    @contextlib.contextmanager
    def up(self) -> Iterator[_Stand]:
        """With its worker, if it has one that is there all the time."""
        if not self.system.worker:
            yield self
            return
        command, env = self._filled(self.system.worker)
        self._worker = Workers([command], env, self._own)
        try:
            self.run("ready")
            yield self
        finally:
            self._worker.kill()

    def cpu_s(self) -> float:
        """Processor time of all commands that ended, their children included, and of its worker."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime + (self._worker.cpu_s() if self._worker else 0.0)

    def run(self, phase: str) -> float:
        """Seconds of one command."""
        command, env = self._filled(self.system.command, phase)
        began = time.monotonic()
        code, said = _ended(command, env, self._own)
        took_s = time.monotonic() - began
        if code != 0:
            told = "\n".join(said.splitlines()[-_LOG_LINES:])
            raise CommandFailed(f"{self.system.title} ended with {code} ({phase}):\n{told}")
        return took_s

    def _filled(self, parts: tuple[str, ...], phase: str = "") -> tuple[list[str], dict[str, str]]:
        command, more = self.system.filled(
            parts,
            bin=str(self._python.parent),
            here=str(HERE),
            own=str(self._own),
            folder=str(self._outputs),
            units=str(self._units),
            phase=phase,
        )
        return command, {**os.environ, "PYTHONPATH": str(ROOT), **more}

    def notices(self, path: Path, intact: bytes) -> Noticed:
        try:
            self.run("repair")
        except CommandFailed:
            return "told"
        return "mended" if path.read_bytes() == intact else "no"

    def files(self) -> dict[Path, Seen]:
        """The outputs; what begins with an underline is a system's own."""
        return {
            path: Seen(path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).digest())
            for path in self._outputs.rglob("*.json")
            if not path.name.startswith("_")
        }
