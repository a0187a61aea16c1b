"""Imports point down the layers declared in pyproject.toml and go through faces, and the check can tell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINTER = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"


def lint(folder: Path, *, path: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", LINTER], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


def toy(folder: Path, **modules: str) -> subprocess.CompletedProcess[str]:
    """The same contract over a package that has every layer that must exist, and these contents."""
    package = folder / "mainstay"
    package.mkdir()
    contract = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    # exceptions name modules that the toy does not have
    contract = re.sub(r"^ignore_imports = \[.*?^\]\n", "", contract, flags=re.DOTALL | re.MULTILINE)
    contract = re.sub(r"^faces = \[.*?^\]\n", "", contract, flags=re.DOTALL | re.MULTILINE)
    (folder / "pyproject.toml").write_text(contract, encoding="utf-8")
    shutil.copytree(ROOT / "tools", folder / "tools")
    present = dict.fromkeys(
        ["__init__", "errors", "clock", "model", "lifecycle", "stores", "testing", "cli", "kinds", "words"], ""
    )
    for name, source in {**present, **modules}.items():
        if f"{name}.__init__" in modules:
            continue
        place = package / f"{name.replace('.', '/')}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(source)
    return lint(folder, path=folder)


def test_our_imports_point_down_the_layers() -> None:
    done = lint(ROOT, path=ROOT / "src")

    assert done.returncode == 0, done.stdout


def test_an_import_of_a_higher_layer_is_found(tmp_path: Path) -> None:
    done = toy(tmp_path, lifecycle="from mainstay import stores")

    assert done.returncode == 1
    assert "mainstay.lifecycle is not allowed to import mainstay.stores" in done.stdout


def test_a_module_without_a_layer_is_found(tmp_path: Path) -> None:
    done = toy(tmp_path, misc="")

    assert done.returncode == 1
    assert "misc" in done.stdout


def test_a_package_that_keeps_the_layers_passes(tmp_path: Path) -> None:
    done = toy(tmp_path, cli="from mainstay import stores, errors")

    assert done.returncode == 0, done.stdout


def test_an_import_past_the_face_of_a_package_is_found(tmp_path: Path) -> None:
    stores = {"stores.__init__": "from .rows import ROWS", "stores.rows": "ROWS = 1"}
    done = toy(tmp_path, **stores, cli="from mainstay.stores.rows import ROWS")

    assert done.returncode == 1
    assert "mainstay.cli:1 imports mainstay.stores.rows; import it from mainstay.stores" in done.stdout


def test_an_import_from_the_face_of_a_package_passes(tmp_path: Path) -> None:
    stores = {"stores.__init__": "from .rows import ROWS", "stores.rows": "ROWS = 1"}
    done = toy(tmp_path, **stores, cli="from mainstay.stores import ROWS")

    assert done.returncode == 0, done.stdout
