"""`mainstay batch`: run studies, here or elsewhere."""

from __future__ import annotations

import typer

from ...cli import command, command_group
from .exec import run_units
from .run import run

group = command_group("Run studies: many units, done when their outputs exist.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(group, "run")(run)
    command(group, "exec")(run_units)
    app.add_typer(group, name="batch")
