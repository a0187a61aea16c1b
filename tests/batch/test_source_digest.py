"""The version of a study's code covers what the study depends on in its project, and nothing else."""

from __future__ import annotations

import importlib
import linecache
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstay.batch.source_digest import _parsed, source_digest

FILES = {
    "__init__.py": "from .core import exported\n",
    "core.py": "from . import consts\n\ndef exported(x):\n    return x * consts.R0\n\ndef unrelated():\n    return 1\n",
    "consts.py": "R0 = 2.0\nTABLE = {}\nTABLE['a'] = 1\nUNUSED = 7\n",
    "late.py": "def later():\n    return 1\n",
    "stars.py": "from .star_source import *\n",
    "star_source.py": "def starred():\n    return 1\n\n\ndef not_used():\n    return 1\n",
    "deep/__init__.py": "",
    "deep/helper.py": "from ..consts import TABLE as table\ndef go():\n    return table\ndef other():\n    return 2\n",
    "whole.py": "SETTING = 1\n",
    "circle.py": "from .circle_back import odd\n\n\ndef even(n):\n    return n == 0 or odd(n - 1)\n",
    "circle_back.py": "from . import circle\n\n\ndef odd(n):\n    return n != 0 and circle.even(n - 1)\n",
    "study.py": '''
"""Words about the module."""
import json
from dataclasses import dataclass

from lab_project import exported
from .deep import helper as h
from .circle import even
from . import stars, whole

K = 3
counter = 0


@dataclass
class Params:
    """Words."""

    beta: float = 0.5


class Base:
    def value(self):
        return 4


class Model(Base):
    def run(self):
        return self.value()


def local(a):
    """Words."""
    return a * K  # a remark


def count():
    global counter
    counter += 1


def plot():
    return 99


def simulate(params: Params, out: "Params") -> float:
    """Words."""
    from .late import later

    plot = 1
    return exported(1) + local(2) + h.go() + later() + stars.starred() + counter + Model().run() + even(2) + plot


def by_value(out):
    return vars(whole)


if __name__ == "__main__":
    print(1)
''',
}


class Project:
    """A small package on the disk, in which a text can be replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lab_project"
        self.write(FILES)

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")

    def digest(self, name: str = "simulate", module: str = "study") -> str:
        """As a program that starts now would have it."""
        _forget_modules()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sys, "dont_write_bytecode", True)
            patched.syspath_prepend(str(self.folder.parent))
            return source_digest(getattr(importlib.import_module(f"lab_project.{module}"), name))


def _forget_modules() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("lab_project", "alone_study")]:
        del sys.modules[name]
    # two writes in one tick of the file system's clock have the same time
    _parsed.cache_clear()
    linecache.clearcache()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield Project(tmp_path)
    _forget_modules()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        pytest.param("study.py", "exported(1)", "exported(2)", id="the function itself"),
        pytest.param("study.py", "K = 3", "K = 4", id="a constant of its module"),
        pytest.param("study.py", "return a * K", "return a + K", id="a helper of its module"),
        pytest.param("study.py", "beta: float = 0.5", "beta: float = 0.6", id="a default of its parameters"),
        pytest.param("study.py", "return 4", "return 5", id="a base class"),
        pytest.param("study.py", "counter += 1", "counter += 2", id="a function that sets a global"),
        pytest.param("consts.py", "R0 = 2.0", "R0 = 3.0", id="a constant of an imported module of an imported module"),
        pytest.param("consts.py", "TABLE['a'] = 1", "TABLE['a'] = 2", id="an item that is set later"),
        pytest.param("core.py", "x * consts", "x + consts", id="a helper that its package hands on"),
        pytest.param("deep/helper.py", "return table", "return {}", id="a helper in a package within"),
        pytest.param("late.py", "return 1", "return 2", id="an import inside the function"),
        pytest.param("star_source.py", "def starred():\n    return 1", "def starred():\n    return 2", id="a star"),
        pytest.param("circle_back.py", "n != 0", "n > 0", id="modules that import each other"),
    ],
)
def test_what_the_function_depends_on_counts(project: Project, file: str, old: str, new: str) -> None:
    before = project.digest()
    assert FILES[file].count(old) == 1

    project.write({file: FILES[file].replace(old, new)})

    assert project.digest() != before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        pytest.param("study.py", "return 99", "return 98", id="a neighbour whose name is a local variable"),
        pytest.param("study.py", "  # a remark", "  # another", id="a remark"),
        pytest.param("study.py", '"""Words."""', '"""Other words."""', id="docstrings"),
        pytest.param("study.py", "print(1)", "print(2)", id="what only the program itself runs"),
        pytest.param("study.py", "import json", "import json\nimport csv", id="another import"),
        pytest.param("core.py", "return 1", "return 2", id="a neighbour in an imported module"),
        pytest.param("consts.py", "UNUSED = 7", "UNUSED = 8", id="a constant that is not used"),
        pytest.param("deep/helper.py", "return 2", "return 3", id="another function of an imported module"),
        pytest.param("whole.py", "SETTING = 1", "SETTING = 2", id="a module that it does not use"),
    ],
)
def test_what_it_does_not_depend_on_does_not_count(project: Project, file: str, old: str, new: str) -> None:
    before = project.digest()
    assert old in FILES[file]

    project.write({file: FILES[file].replace(old, new)})

    assert project.digest() == before


def test_of_a_module_that_is_used_as_a_value_everything_counts(project: Project) -> None:
    before = project.digest("by_value")

    project.write({"whole.py": "SETTING = 2\n"})

    assert project.digest("by_value") != before


def test_the_digest_is_the_same_wherever_the_project_is(project: Project, tmp_path: Path) -> None:
    elsewhere = Project(tmp_path / "another" / "place")
    installed = Project(tmp_path / "lib" / "site-packages")

    assert project.digest() == elsewhere.digest() == installed.digest()


def test_in_the_folder_of_a_script_its_neighbours_count_and_installed_packages_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "alone_study.py").write_text(
        "import msgspec\nimport alone_helper\n\n\ndef f(out):\n    return alone_helper.g(msgspec.json)\n"
    )
    helper = tmp_path / "alone_helper.py"
    helper.write_text("def g(x):\n    return 1\n")
    function = importlib.import_module("alone_study").f
    before = source_digest(function)

    helper.write_text("def g(x):\n    return 10\n")
    _parsed.cache_clear()
    assert source_digest(function) != before
    helper.write_text("def g(x):\n    return 1\n")
    _parsed.cache_clear()
    assert source_digest(function) == before
    _forget_modules()
    sys.modules.pop("alone_helper")


@pytest.mark.parametrize("inside", [False, True], ids=["a script", "a module of a package"])
def test_the_program_that_is_started_has_the_digest_that_its_workers_have(tmp_path: Path, inside: bool) -> None:
    folder = tmp_path / "around" if inside else tmp_path
    folder.mkdir(exist_ok=True)
    if inside:
        (folder / "__init__.py").touch()
    (folder / "started.py").write_text(
        "from mainstay.batch.source_digest import source_digest\n\nK = 3\n\n\ndef helper():\n    return K\n\n\n"
        "def f(out):\n    return helper()\n\n\nif __name__ == '__main__':\n    print(source_digest(f))\n"
    )
    name = "around.started" if inside else "started"
    imported = f"import {name} as s; print(s.source_digest(s.f))"

    def printed(*words: str) -> str:
        command = [sys.executable, "-B", *words]
        environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        return subprocess.run(command, cwd=tmp_path, env=environ, check=True, capture_output=True, text=True).stdout

    assert printed(str(folder / "started.py")) == printed("-c", imported) == printed("-m", name)


def test_a_function_that_depends_on_nothing_has_the_digest_of_its_own_text(project: Project) -> None:
    assert project.digest("later", "late") == "64a16983319b"


def test_a_file_that_is_imported_by_two_names_has_one_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `lab.sweep` by a program, and as `sweep` by `mainstay batch run lab/sweep.py`."""
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "sweep.py").write_text("RATE = 2\n\n\ndef simulate(params):\n    return RATE * params['n']\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()

    names = ("lab.sweep", "sweep")
    try:
        one, other = (source_digest(importlib.import_module(name).simulate) for name in names)
    finally:
        for name in (*names, "lab"):
            sys.modules.pop(name, None)

    assert one == other
