"""Inside a kind the engine stands below its command line, its reports and its web pages."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mainstay

ROOT = Path(mainstay.__file__).parent
FACES = ("cli", "report", "web")
KINDS = ("task", "batch", "load", "node")


def imported(path: Path) -> set[str]:
    """The modules of mainstay that a file imports, as dotted paths below it."""
    package = path.relative_to(ROOT).parent.parts
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            module = (*base, *((node.module or "").split(".") if node.module else ()))
            found |= {".".join((*module, alias.name)) for alias in node.names} | {".".join(module)}
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_of_a_kind_does_not_import_its_faces(kind: str) -> None:
    faces = {f"{kind}.{face}" for face in FACES}
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / kind).rglob("*.py"))
        if path.relative_to(ROOT / kind).parts[0] not in FACES
        for name in imported(path)
        if ".".join(name.split(".")[:2]) in faces
    ]
    assert wrong == []
