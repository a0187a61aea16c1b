"""Words that stay out of what users read: pages, help, messages, templates."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.house.tree import ROOT, SRC, Module, modules

#: each with what to say instead
WORDS = {
    r"anew": "again",
    r"whoever": "name the actor: the worker, the caller",
    r"somebody|nobody": "name the actor, or use the passive of what happens",
    r"told": "reported, given, sent",
    r"(?<!there )(?:is|are|was) no(?! (?:longer|more|fewer|less|later|earlier|older|newer)\b)": "is not a",
    r"so many": "the number",
    r"for ever": "forever, or the rule",
    r"of what": "name the thing",
    r"\d+ there": "present",
}
_LISTED = re.compile("|".join(rf"\b(?:{word})\b" for word in WORDS), re.IGNORECASE)
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
#: a test that a page names by its sentence
_PROOF = re.compile(r"\[[^\]]+\]\([^)]+\.py\)")
_MARKUP = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|<script.*?</script>|<[^>]*>", re.DOTALL)


class Occurrence(NamedTuple):
    """A listed word in a text that users read."""

    where: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.where}:{self.line}: {self.text}"


def listed_words(text: str) -> list[str]:
    """The listed words of a text.

    >>> listed_words("Nobody has said that 'x' is no proxy; there is no queue, and it is no longer paused.")
    ['Nobody', 'is no']
    """
    return _LISTED.findall(text)


def in_pages() -> Iterator[Occurrence]:
    """In the prose of the pages: README, docs, changelog; code and the names of tests are left out."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in sorted(pages):
        text = page.read_text(encoding="utf-8")
        for code in (_FENCED, _PROOF, _CODE):
            text = code.sub(_lines, text)
        yield from _in_text(page, text)


def in_programs() -> Iterator[Occurrence]:
    """In what the program prints: strings of the code, help of commands, templates."""
    for module in modules():
        for node in _texts(module):
            for word in listed_words(str(node.value)):
                yield Occurrence(_place(module.path), node.lineno, word)
    for path in sorted([*SRC.rglob("*.html"), *SRC.rglob("*.txt")]):
        yield from _in_text(path, _MARKUP.sub(_lines, path.read_text(encoding="utf-8")))


def _texts(module: Module) -> Iterator[ast.Constant]:
    """Strings of a module that a user may read: sentences, not keys or SQL; docstrings only of commands."""
    alone = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    commands = {id(value) for node in ast.walk(module.tree) for value in _help_of(node)}
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or not _is_sentence(node.value):
            continue
        if id(node) not in alone or id(node) in commands:
            yield node


def _is_sentence(text: str) -> bool:
    return len(text.split()) > 1 and "CREATE TABLE" not in text


def _help_of(node: ast.AST) -> Iterator[ast.Constant]:
    """The docstring of a command, which is its help: it lists the exit codes."""
    if not isinstance(node, ast.FunctionDef) or not isinstance(node.body[0], ast.Expr):
        return
    first = node.body[0].value
    if isinstance(first, ast.Constant) and "Exit codes:" in str(first.value):
        yield first


def _in_text(path: Path, text: str) -> Iterator[Occurrence]:
    for number, line in enumerate(text.splitlines(), 1):
        for word in listed_words(line):
            yield Occurrence(_place(path), number, word)


def _lines(found: re.Match[str]) -> str:
    """The line breaks of what is left out, so that line numbers stay right."""
    return "\n" * found[0].count("\n")


def _place(path: Path) -> str:
    return str(path.relative_to(ROOT))
