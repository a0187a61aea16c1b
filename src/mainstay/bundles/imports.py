"""Which modules of a project a program imports, from the source alone.

The imports are read with `ast`, and nothing is run. Modules that are loaded after an import (`sys.modules`) would be
the other way: that runs the program on the machine that submits it, misses imports inside functions that were not
called, and depends on what else the process has imported. The weakness of this way is an import by a computed name:
give such modules as patterns. Imports by a literal name (`import_module("shop.plugins")`) are found.
"""

from __future__ import annotations

import ast
import importlib.machinery
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import InvalidInput

_IMPORTERS = frozenset({"import_module", "__import__"})


class ImportGraph:
    """The modules below one root. `reach` follows their imports."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, module: str) -> Path | None:
        """The file of a module as Python would find it with the root first on its path; None: not below the root."""
        parts = module.split(".")
        if not all(part.isidentifier() for part in parts):  # the literal of a call may be anything, a path too
            return None
        place = self._root.joinpath(*parts)
        if (file := place / "__init__.py").is_file():
            return file
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            for compiled in (place / f"__init__{suffix}", place.parent / f"{place.name}{suffix}"):
                if compiled.is_file() and not place.with_suffix(".py").is_file():
                    raise InvalidInput(
                        "bundle",
                        f"module {module} is compiled ({compiled.name}), and would not run on every node; "
                        "install its package on the nodes instead",
                    )
        return file if (file := place.parent / f"{place.name}.py").is_file() else None

    def imports_of(self, file: Path) -> list[str]:
        """The names that a file imports as a script: it belongs to no package."""
        return list(_imported(file, ""))

    def reach(self, modules: Iterable[str]) -> dict[str, Path]:
        """These modules, their packages, and all that they import below the root: name -> file."""
        files: dict[str, Path] = {}
        seen: set[str] = set()
        todo = list(modules)
        while todo:
            module = todo.pop()
            if module in seen:
                continue
            seen.add(module)
            # the nodes have Mainstay in a version that fits the cluster
            if not module or module.partition(".")[0] == "mainstay":
                continue
            todo += [module.rpartition(".")[0]]
            file = self.find(module)
            if file is None:
                continue
            files[module] = file
            package = module if file.name == "__init__.py" else module.rpartition(".")[0]
            todo += _imported(file, package)
        return files


def _imported(file: Path, package: str) -> Iterator[str]:
    """The names that a file imports: modules, and names within them that may be modules."""
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError) as error:
        raise InvalidInput("bundle", f"{file} cannot be read as Python ({error}); correct it or leave it out") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _source(node, package)
            yield source
            yield from (f"{source}.{alias.name}" if source else alias.name for alias in node.names)
        elif isinstance(node, ast.Call):
            yield from _called(node, package)
        elif file.name == "__init__.py" and isinstance(node, ast.Assign) and _is_all(node):
            # `from package import *` imports the modules that `__all__` names
            yield from (f"{package}.{name}" for name in _texts(node.value))


def _source(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    above = parts[: max(0, len(parts) - node.level + 1)]
    return ".".join([*above, *([node.module] if node.module else [])])


def _called(node: ast.Call, package: str) -> Iterator[str]:
    function = node.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    if name not in _IMPORTERS or not node.args:
        return
    given = node.args[0]
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        module = given.value
        yield f"{package}.{module.lstrip('.')}" if module.startswith(".") else module


def _is_all(node: ast.Assign) -> bool:
    return any(isinstance(name, ast.Name) and name.id == "__all__" for name in node.targets)


def _texts(node: ast.expr) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value.isidentifier():
            yield inner.value


__all__ = ["ImportGraph"]
