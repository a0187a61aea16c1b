"""The `mainstay` command. Thin: every command is a few lines over control, check or lifecycle.

Layer: the top. The commands are in `root`, which is imported only when it is needed: so Ctrl-C is answered quietly
from the first moment on, also while everything else is still being imported.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

    app: typer.Typer

#: what a shell says of a program that was stopped by Ctrl-C
INTERRUPTED = 130
#: what a shell says of a program whose reader went away, as `head` does; 1 would mean that `check` found something
READER_GONE = 141


def main() -> None:
    """What the `mainstay` script and `python -m mainstay` run."""
    _open_what_is_closed()
    try:
        from .root import program  # noqa: PLC0415 - see above

        program()(prog_name="mainstay")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        # typer and rich meet a closed pipe on their own, and both leave with 1
        if isinstance(end.__context__, BrokenPipeError):
            sys.exit(READER_GONE)
        raise


def _open_what_is_closed() -> None:
    """Have somewhere to print to. A file that is opened while one of the three is closed gets its number, and a store
    is a file: what a library prints would go into it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the end


def __getattr__(name: str) -> Any:
    if name == "app":
        from .root import program  # noqa: PLC0415 - see above

        globals()["app"] = program()
        return globals()["app"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["INTERRUPTED", "READER_GONE", "app", "main"]
