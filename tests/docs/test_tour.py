"""The tour of the README can be followed in both ways it names, with a worker at work."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks

pytestmark = pytest.mark.slow

TOUR = (ROOT / "README.md").read_text(encoding="utf-8").partition("## A five-minute tour")[2]
BLOCKS = [block for block in blocks(TOUR) if block.language == "python"]
CODE = [block.text for block in BLOCKS if not block.file]
#: the last thing the tour prints
LAST = "[('shop.send', 1), ('shop.send', 2)] {'succeeded': 1}"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the reader is: the files of the tour, and the worker that was started."""
    for block in BLOCKS:
        if block.file:
            (tmp_path / block.file).write_text(block.text + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "mainstay", "worker", "shop:app"]
    worker = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield tmp_path
    worker.kill()
    worker.wait()


def test_at_the_prompt_block_by_block(folder: Path) -> None:
    # an empty line ends a block at a prompt
    typed = "\n\n".join(CODE) + "\n\n"

    done = run(["-m", "asyncio"], folder, typed)

    assert LAST in done.stdout
    assert "Traceback" not in done.stderr
    assert "SyntaxError" not in done.stderr


def test_as_a_program(folder: Path) -> None:
    body = textwrap.indent("\n".join(CODE), "    ")
    program = folder / "tour.py"
    program.write_text(f"import asyncio\n\n\nasync def main():\n{body}\n\n\nasyncio.run(main())\n", encoding="utf-8")

    done = run([str(program)], folder, "")

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(LAST + "\n")


def run(words: list[str], folder: Path, typed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        input=typed,
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
