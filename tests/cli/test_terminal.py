"""The terminal of the tests: it waits for a limited time."""

from __future__ import annotations

import os
import sys

import pytest

from tests.cli.terminal import PseudoTerminal


def test_a_text_that_does_not_appear_and_a_program_that_does_not_end_fail_with_the_output() -> None:
    program = "import time; print('ready', flush=True); time.sleep(600)"
    with PseudoTerminal([sys.executable, "-c", program], os.environ) as terminal:
        terminal.wait_for("ready")
        with pytest.raises(AssertionError, match=r"'steady' did not appear; the terminal shows\nready"):
            terminal.wait_for("steady", within_s=0.05)
        with pytest.raises(AssertionError, match=r"did not end; the terminal shows\nready"):
            terminal.end(within_s=0.05)
