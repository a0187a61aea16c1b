"""What a lazy package exports: the same names to programs as to type checkers."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[1] / "src"


def exports(text: str) -> tuple[set[str], set[str]]:
    """The names that a type checker sees in an `__init__`, and those in its table of lazy names."""
    typed: set[str] = set()
    lazy: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            imports = [each for each in node.body if isinstance(each, ast.ImportFrom)]
            typed |= {alias.asname or alias.name for each in imports for alias in each.names}
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.value.args) > 1:
            table: dict[str, str] = ast.literal_eval(node.value.args[1])
            lazy |= {name for names in table.values() for name in names.split()}
    return typed, lazy


PACKAGES = [path for path in sorted(SOURCE.rglob("__init__.py")) if "= lazy_exports(" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: ".".join(path.parent.relative_to(SOURCE).parts))
def test_a_lazy_package_exports_what_type_checkers_see(path: Path) -> None:
    typed, lazy = exports(path.read_text("utf-8"))
    package = importlib.import_module(".".join(path.parent.relative_to(SOURCE).parts))

    assert lazy == typed
    for name in lazy:
        assert not isinstance(getattr(package, name), ModuleType), f"{name} is the name of a module, too"
    assert lazy <= set(dir(package))


def test_the_packages_are_found() -> None:
    assert len(PACKAGES) > 10
