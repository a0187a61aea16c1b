"""Nothing is pickled: what is stored, and what processes say to each other, is data that is checked when it is read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mainstay

SOURCES = sorted(Path(mainstay.__file__).parent.rglob("*.py"))
#: each of these reads bytes by running what is in them, or hands them to one that does
PICKLERS = frozenset({"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "multiprocessing"})


def imported(source: str) -> set[str]:
    """The top-level packages that a module imports, wherever in it, if any that pickles is among them."""
    found: set[str] = set()
    if not any(name in source for name in (*PICKLERS, "ProcessPoolExecutor")):
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
            found.update(name.name for name in node.names if name.name == "ProcessPoolExecutor")
    return found


def test_no_module_imports_what_pickles() -> None:
    guilty = {path.name: bad for path in SOURCES if (bad := imported(path.read_text(encoding="utf-8")) & PICKLERS)}

    assert len(SOURCES) > 100
    assert guilty == {}


def test_no_module_uses_the_pool_that_pickles() -> None:
    assert not [path.name for path in SOURCES if "ProcessPoolExecutor" in imported(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("source", "package"),
    [
        ("import pickle", "pickle"),
        ("def late():\n    import marshal as m", "marshal"),
        ("from multiprocessing.connection import Client", "multiprocessing"),
        ("from concurrent.futures import ProcessPoolExecutor", "ProcessPoolExecutor"),
    ],
)
def test_such_an_import_would_be_seen(source: str, package: str) -> None:
    assert package in imported(source)
