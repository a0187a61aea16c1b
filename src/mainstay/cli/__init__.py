"""The `mainstay` command. Commands are thin: they call control, the check or the lifecycle, and print the result.

Layer: the top. The commands are in `root`, which is imported on first use, so that Ctrl-C ends the program quietly even
while it still imports its modules.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from .exits import INTERRUPTED, READER_GONE

if TYPE_CHECKING:
    import typer

    app: typer.Typer


def main() -> None:
    """The entry point of the `mainstay` script and of `python -m mainstay`."""
    _reopen_closed_streams()
    try:
        from .root import program  # noqa: PLC0415 - see above

        program()(prog_name="mainstay")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        # typer and rich handle a closed pipe themselves, and both exit with 1
        if isinstance(end.__context__, BrokenPipeError):
            sys.exit(READER_GONE)
        raise


def _reopen_closed_streams() -> None:
    """Open /dev/null for a closed standard stream. Otherwise the next opened file gets its descriptor, and a library
    that prints would write into the store."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open until the exit


def __getattr__(name: str) -> Any:
    if name == "app":
        from .root import program  # noqa: PLC0415 - see above

        globals()["app"] = program()
        return globals()["app"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["app", "main"]
