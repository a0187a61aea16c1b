"""One virtual environment per system, kept under `.bench/`: their requirements exclude each other."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".bench"
REQUIREMENTS = Path(__file__).parent / "peers" / "requirements"


class InstallFailed(Exception):
    """A system's packages could not be installed."""


Install = Callable[[Path, Path, Path], None]


def python_of(name: str | None, *, install: Install | None = None) -> Path:
    """The interpreter of that environment, which is made or renewed if its requirements changed."""
    if name is None:
        return Path(sys.executable)
    requirements = REQUIREMENTS / f"{name}.txt"
    folder = CACHE / name
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    (install or _install)(folder, python, requirements)
    stamp.write_text(wanted)
    return python


def version(python: Path, package: str) -> str:
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()


def _install(folder: Path, python: Path, requirements: Path) -> None:
    # uv is faster but does not read pip's configuration, so where it cannot find a package pip gets its turn
    ways = [
        [
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(requirements)],
        ]
    ]
    if uv := shutil.which("uv"):
        ways.insert(
            0,
            [
                [uv, "venv", "-q", "--clear", "--python", sys.executable, str(folder)],
                [uv, "pip", "install", "-q", "--python", str(python), "-r", str(requirements)],
            ],
        )
    said = ""
    for way in ways:
        for command in way:
            run = subprocess.run(command, check=False, capture_output=True, text=True)
            if run.returncode != 0:
                said = run.stderr
                break
        else:
            return
    raise InstallFailed(f"cannot install {requirements.name}:\n{said.strip()}")
