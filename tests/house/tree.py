"""The source tree as data: modules with their syntax trees, code lines, classes and imports."""

from __future__ import annotations

import ast
import io
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
_BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


class Module(NamedTuple):
    """One module of the product."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    is_package: bool

    @property
    def package(self) -> str:
        """The top-level package it belongs to; `root` for the modules beside the packages."""
        parts = self.name.split(".")
        inside = len(parts) > 2 or (len(parts) == 2 and self.is_package)
        return parts[1] if inside else "root"

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[2]


@cache
def modules(source: Path = SRC) -> tuple[Module, ...]:
    """Every module below a source folder, by name."""
    return tuple(_module(path, source) for path in sorted(source.rglob("*.py")))


def _module(path: Path, source: Path) -> Module:
    parts = path.relative_to(source).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    text = path.read_text(encoding="utf-8")
    return Module(".".join(parts[:-1] if is_package else parts), path, text, ast.parse(text), is_package)


def code_lines(text: str) -> int:
    """Lines with code: no blank lines, no comments, no docstrings.

    >>> code_lines('def f():\\n    "What it does."\\n\\n    # why\\n    return (\\n        1\\n    )\\n')
    4
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _BLANK:
            lines.update(range(token.start[0], token.end[0] + 1))
    for first, last in _docstrings(ast.parse(text)):
        lines.difference_update(range(first, last + 1))
    return len(lines)


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Strings that stand alone: of modules, classes and functions, and those below the field they describe."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.end_lineno or node.lineno


def lines_by_package() -> Counter[str]:
    """Code lines of each package."""
    found: Counter[str] = Counter()
    for module in modules():
        found[module.package] += code_lines(module.text)
    return found


def command_line_modules() -> list[Module]:
    """The command line of all kinds together: `cli` itself and every `cli` inside a package."""
    return [module for module in modules() if "cli" in module.name.split(".")]


def public_classes() -> dict[str, list[str]]:
    """Class names without an underscore at the top of a module, and the modules that define each."""
    found: dict[str, list[str]] = {}
    for module in modules():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module.name)
    return found


def faces() -> set[str]:
    """Modules below a package that other packages may import, as the contract of import-linter lists them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    return {face for contract in contracts for face in contract.get("faces", ())}


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """The modules of the product that a module imports, with the line: absolute names, wherever the import stands."""
    known = {each.name for each in modules()}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "mainstay":
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            if base.split(".")[0] == "mainstay":
                for name in dict.fromkeys(
                    inside if (inside := f"{base}.{alias.name}") in known else base for alias in node.names
                ):
                    yield node.lineno, name


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    up = node.level - 1 if module.is_package else node.level
    base = parts[: len(parts) - up]
    return ".".join([*base, node.module] if node.module else base)
