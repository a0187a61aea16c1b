"""The command as a process: how it starts, and how it ends when somebody stops it or stops reading."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

MODULE = (sys.executable, "-m", "mainstay")

#: Ctrl-C at the worst time: while the commands are being imported
PRESSED_EARLY = """
import sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == "mainstay.cli.root":
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
from mainstay.cli import main
main()
"""


def test_the_module_can_be_run() -> None:
    done = subprocess.run([*MODULE, "--version"], capture_output=True, text=True, check=True)

    assert done.stdout == f"mainstay {version('mainstay')}\n"


@pytest.mark.parametrize(
    "words",
    [("machine",), ("machine", "--format", "json"), ("check", "--store", "memory:"), ("--help",)],
    ids=" ".join,
)
def test_a_reader_that_goes_away_is_no_violation_and_no_noise(words: tuple[str, ...]) -> None:
    process = subprocess.Popen([*MODULE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, noise = process.communicate(timeout=60)

    assert (process.returncode, noise) == (141, b"")


def test_ctrl_c_while_it_starts_is_quiet() -> None:
    done = subprocess.run([sys.executable, "-c", PRESSED_EARLY], capture_output=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
