"""`mainstay load`: the group of the load commands.

Load tests need an extra; the commands import it only when they run.
"""

from __future__ import annotations

import typer

from . import new, ping, report, run, target

group = typer.Typer(
    help="Run load tests, and report and compare them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for module in (run, new, ping, target, report):
        module.register(group)
    app.add_typer(group, name="load")
