"""Runs every code block of a Markdown page. A block nobody knows how to run is a failure, never skipped.

- `python` blocks of a page share one namespace and one event loop; top-level await is allowed.
- a `python` block whose first line is `# name.py` is a file: it is written, for later blocks to import or to run.
- a `text` block after a `python` block is what that block printed.
- `console` and `bash` blocks hold commands after `$ `; lines below a `mainstay` command are what it prints at 80
  columns, and `JOB` in one stands for the job id that was printed last. One that does not end with 0 says so after it:
  `# exits with 3`. What else a shell does is in `shell.py`.
- `sql` blocks are run on the page's database, as by somebody who knows nothing of Mainstay.
- `mermaid` blocks are drawings of our own tables, or flowcharts; the packages that a flowchart names exist.

Expected output may use `...` for what changes from run to run.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import importlib.util
import inspect
import io
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from typer.testing import CliRunner

from mainstay.cli import app
from mainstay.lifecycle import JOB, UNIT
from mainstay.lifecycle.diagram import mermaid
from tests.docs.shell import Shell

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "mainstay"
_CHECKER = doctest.OutputChecker()
_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_FILE = re.compile(r"# (\w+\.py)\n")
#: the package at the beginning of a node's label: `insert["stores/sqlite: one transaction"]`
_PACKAGE = re.compile(r'\["([a-z_/]+): ')
_EXITS = re.compile(r"# exits with (\d+)$")
_JOB_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Block(NamedTuple):
    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file that it is, if it is one."""
        found = _FILE.match(self.text)
        return found[1] if found and self.language == "python" else None


class BadBlock(AssertionError):
    """A block that fails, or that nobody knows how to run."""


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if not line.lstrip().startswith("```"):
            continue
        indent = len(line) - len(line.lstrip())
        body = []
        for _, inner in lines:
            if inner.strip() == "```":
                break
            body.append(inner[indent:])
        else:
            raise BadBlock(f"line {number}: the block is never closed")
        yield Block(number, line.strip().removeprefix("```").strip(), "\n".join(body))


class Page:
    """Runs blocks one after the other, as a reader would."""

    def __init__(self, text: str, *, database: str = "") -> None:
        self._blocks = list(blocks(text))
        self._database = database
        self._names: dict[str, Any] = {"__name__": "__page__"}
        self._printed: str | None = None
        self._job_id = "JOB"
        self._cli = CliRunner()
        self._shell = Shell()

    def run(self) -> int:
        """Run all; the number of blocks that ran."""
        with _importing_from_here(), self._shell, asyncio.Runner() as self._loop:
            for block in self._blocks:
                self._run_one(block)
            if self._shell.running:
                raise BadBlock(f"{self._shell.running} is still running at the end of the page")
        return len(self._blocks)

    def _run_one(self, block: Block) -> None:
        printed, self._printed = self._printed, None
        match block.language:
            case "python" if block.file:
                Path(block.file).write_text(block.text + "\n", encoding="utf-8")
                # bytecode of the one before would be taken for its own, if both are of one second and one length
                Path(cache_from_source(str(Path(block.file).absolute()))).unlink(missing_ok=True)
            case "python":
                self._printed = self._seen(self._run_python(block))
            case "text":
                if printed is None:
                    raise BadBlock(f"line {block.line}: a text block stands for the output of a python block before it")
                _compare(block, block.text, printed)
            case "console" | "bash":
                self._run_commands(block)
            case "sql" if self._database:
                with psycopg.connect(self._database) as db:
                    db.execute(block.text)
            case "mermaid" if block.text.startswith("flowchart "):
                if missing := [name for name in _PACKAGE.findall(block.text) if not (SOURCE / name).is_dir()]:
                    raise BadBlock(f"line {block.line}: the flowchart names packages that do not exist: {missing}")
            case "mermaid":
                if block.text not in (mermaid(JOB), mermaid(UNIT)):
                    raise BadBlock(f"line {block.line}: the diagram is not one our tables draw; run `make docs`")
            case other:
                raise BadBlock(f"line {block.line}: nobody knows how to run a block of {other or 'no language'!r}")

    def _run_python(self, block: Block) -> str:
        # padded so that a traceback names the line of the page
        source, flags = "\n" * block.line + block.text, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        # what this module imports from the future is not what a reader's program has
        code = compile(source, "<page>", "exec", flags, dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            if code.co_flags & inspect.CO_COROUTINE:
                self._loop.run(eval(code, self._names))
            else:
                exec(code, self._names)
        return out.getvalue()

    def _run_commands(self, block: Block) -> None:
        found = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
        if found[0].strip() or len(found) == 1:
            raise BadBlock(f"line {block.line}: commands start with `$ `")
        for part in found[1:]:
            command, _, expected = part.partition("\n")
            words = [word.replace("JOB", self._job_id) for word in shlex.split(command, comments=True)]
            if words[0] == "mainstay" and words[-1] != "&":
                code = _EXITS.search(command)
                self._run_mainstay(block, words[1:], expected, code=int(code[1]) if code else 0)
            elif words[0] == "curl":
                _compare(block, expected, self._seen(self._shell.fetched(words)))
            elif expected.strip() or not (self._shell.did(words) or _is_plausible(words)):
                raise BadBlock(f"line {block.line}: nobody knows how to check `{command}`")

    def _run_mainstay(self, block: Block, words: list[str], expected: str, *, code: int) -> None:
        done = self._cli.invoke(app, words, catch_exceptions=False, env={**self._shell.variables, "COLUMNS": "80"})
        if done.exit_code != code:
            told = f"`mainstay {shlex.join(words)}` failed, with {done.exit_code}"
            raise BadBlock(f"line {block.line}: {told}:\n{done.output}")
        if expected.strip():
            _compare(block, expected, self._seen(done.stdout))

    def _seen(self, printed: str) -> str:
        """Remember the last job id of what was printed, as a reader who will copy it does."""
        for found in _JOB_ID.finditer(printed):
            self._job_id = found[0]
        return printed


@contextlib.contextmanager
def _importing_from_here() -> Iterator[None]:
    """Python finds the files of a page, as it does for whoever stands in that folder, and forgets them afterwards."""
    here = Path.cwd()
    sys.path.insert(0, str(here))
    try:
        yield
    finally:
        sys.path.remove(str(here))
        for name, module in sys.modules.copy().items():
            if (file := getattr(module, "__file__", None)) and Path(file).parent == here:
                del sys.modules[name]


def _compare(block: Block, expected: str, printed: str) -> None:
    expected, printed = expected.strip() + "\n", printed.strip() + "\n"
    if not _CHECKER.check_output(expected, printed, _OPTIONS):
        raise BadBlock(f"line {block.line}: expected\n{expected}\nbut it printed\n{printed}")


def _is_plausible(words: list[str]) -> bool:
    """Commands that build, fetch or install are not run; what they name has to exist."""
    match words:
        case ["make", *targets]:
            return bool(targets) and set(targets) <= make_targets()
        case ["git", "clone", _]:
            return True
        case ["cd", "mainstay"]:
            return True
        case [".", activate]:
            return activate == f"{venv()}/bin/activate"
        case ["python", "-m", module]:
            return importlib.util.find_spec(module) is not None
        # from a clone, for there is no release yet; an extra of what is installed already
        case ["pip", "install", "-e", "."]:
            return True
        case ["pip", "install", package]:
            found = re.fullmatch(r"mainstay\[([a-z,]+)\]", package)
            return found is not None and set(found[1].split(",")) <= extras()
    return False


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):(?!=)", text, flags=re.MULTILINE))


def venv() -> str:
    """The folder of the environment that `make` builds."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return re.findall(r"^VENV := (\S+)$", text, flags=re.MULTILINE)[0]


def extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])
