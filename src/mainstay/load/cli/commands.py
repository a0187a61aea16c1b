"""`mainstay load`: the group of the load commands.

Load tests need an extra; the commands import it only when they run.
"""

from __future__ import annotations

import typer

from ...cli import command, command_group
from .new import new
from .ping import ping
from .report import compare, report
from .run import run
from .target import target
from .watch import watch

group = command_group("Run load tests, and report and compare them.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for function in (run, watch, new, ping, target, report, compare):
        command(group, function.__name__)(function)
    app.add_typer(group, name="load")
