"""The command as a process: how it starts, and how it ends when somebody stops it or stops reading."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib.metadata import version

import pytest

from mainstay.cli.root import commands

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

#: a command, and then what it has imported
IMPORTED = """
import sys
from mainstay.cli import main

sys.argv = ["mainstay", "machine"]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
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


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_it_works_without_anywhere_to_print_to(closed: str) -> None:
    command = f"{shlex.join([*MODULE, 'check', '--store', 'memory:'])} {closed}"

    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_ctrl_c_while_it_starts_is_quiet() -> None:
    done = subprocess.run([sys.executable, "-c", PRESSED_EARLY], capture_output=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_command_imports_no_other() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)

    modules = {command.module for command in commands().values()}
    assert set(done.stderr.split()) & modules == {"mainstay.cli.machine"}


def test_an_unknown_command_is_named_beside_those_like_it() -> None:
    done = subprocess.run([*MODULE, "job"], capture_output=True, text=True, check=False)

    assert (done.returncode, "No such command 'job'" in done.stderr, "jobs" in done.stderr) == (2, True, True)
