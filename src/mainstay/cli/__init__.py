"""The `mainstay` command. Commands are thin: they call control, the check or the lifecycle, and print the result.

Layer: the top. The commands are in `root`, which is imported on first use, so that Ctrl-C ends the program quietly even
while it still imports its modules.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..lazy_exports import lazy_exports
from . import exits

if TYPE_CHECKING:
    from .commands import (
        Output as Output,
        command as command,
        command_group as command_group,
        error_as_json as error_as_json,
    )
    from .common import (
        InvalidUsage as InvalidUsage,
        JsonOption as JsonOption,
        aside as aside,
        coloured as coloured,
        print_command as print_command,
        print_json as print_json,
        print_line as print_line,
        printable as printable,
        screen as screen,
    )
    from .ids import IdArgument as IdArgument, IdsArgument as IdsArgument, full_id as full_id
    from .options import OptionGroup as OptionGroup, local_actor as local_actor, panel as panel
    from .programs import Connected as Connected, connecting as connecting
    from .root import app as app
    from .target import Where as Where, load_app as load_app
    from .termination import cancelled_by_signals as cancelled_by_signals


def main() -> None:
    """The entry point of the `mainstay` script and of `python -m mainstay`."""
    _reopen_closed_streams()
    try:
        from .root import app  # noqa: PLC0415 - see above

        app(prog_name="mainstay")
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
    except SystemExit as end:
        # typer and rich handle a closed pipe themselves, and both exit with 1
        if isinstance(end.__context__, BrokenPipeError):
            sys.exit(exits.READER_GONE)
        raise


def _reopen_closed_streams() -> None:
    """Open /dev/null for a closed standard stream. Otherwise the next opened file gets its descriptor, and a library
    that prints would write into the store."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open until the exit


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".commands": "Output command command_group error_as_json",
        ".common": "InvalidUsage JsonOption aside coloured print_command print_json print_line printable screen",
        ".ids": "IdArgument IdsArgument full_id",
        ".root": "app",
        ".options": "OptionGroup local_actor panel",
        ".programs": "Connected connecting",
        ".target": "Where load_app",
        ".termination": "cancelled_by_signals",
    },
)
