"""`mainstay batch`: run studies, here or elsewhere."""

from __future__ import annotations

import typer

from . import exec as exec_command, run

group = typer.Typer(
    help="Run studies: many units, done when their outputs exist.", no_args_is_help=True, rich_markup_mode="rich"
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for module in (run, exec_command):
        module.register(group)
    app.add_typer(group, name="batch")
