"""The tour of the README can be followed in both ways it names."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.docs.blocks import ROOT, blocks

CODE = [block.text for block in blocks((ROOT / "README.md").read_text(encoding="utf-8")) if block.language == "python"]
#: the last thing the tour prints
PROVEN = "[('broken_chain', 'event 3 was changed after it was written')]"


def test_at_the_prompt_block_by_block(tmp_path: Path) -> None:
    # an empty line ends a block at a prompt
    typed = "\n\n".join(CODE) + "\n\n"

    done = run(["-m", "asyncio"], tmp_path, typed)

    assert PROVEN in done.stdout
    assert "Traceback" not in done.stderr
    assert "SyntaxError" not in done.stderr


def test_as_a_program(tmp_path: Path) -> None:
    body = textwrap.indent("\n".join(CODE), "    ")
    program = tmp_path / "tour.py"
    program.write_text(f"import asyncio\n\n\nasync def main():\n{body}\n\n\nasyncio.run(main())\n", encoding="utf-8")

    done = run([str(program)], tmp_path, "")

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(PROVEN + "\n")


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
