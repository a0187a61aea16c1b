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
        OPENERS as OPENERS,
        CommandOutput as CommandOutput,
        command as command,
        command_group as command_group,
        error_as_json as error_as_json,
        error_data as error_data,
    )
    from .common import (
        InvalidUsage as InvalidUsage,
        JsonOption as JsonOption,
        aside as aside,
        busy as busy,
        coloured as coloured,
        print_command as print_command,
        print_json as print_json,
        print_line as print_line,
        printable as printable,
        screen as screen,
        stderr_console as stderr_console,
        using as using,
    )
    from .ids import IdArgument as IdArgument, IdsArgument as IdsArgument, full_id as full_id
    from .jobs_view import story_table as story_table
    from .options import (
        ForOption as ForOption,
        OptionGroup as OptionGroup,
        ProcessOptions as ProcessOptions,
        concurrency_option as concurrency_option,
        key_value as key_value,
        local_actor as local_actor,
        panel as panel,
    )
    from .programs import Connected as Connected, connected as connected
    from .root import app as app
    from .serve import AccessOptions as AccessOptions, TlsOptions as TlsOptions, web_options as web_options
    from .story import ClusterWhere as ClusterWhere
    from .tables import Column as Column, facts as facts, table as table
    from .target import Where as Where, load_app as load_app, shell_word as shell_word
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
        ".commands": "CommandOutput OPENERS command command_group error_as_json error_data",
        ".common": (
            "InvalidUsage JsonOption aside busy coloured print_command print_json print_line printable screen "
            "stderr_console using"
        ),
        ".ids": "IdArgument IdsArgument full_id",
        ".jobs_view": "story_table",
        ".root": "app",
        ".options": "ForOption OptionGroup ProcessOptions concurrency_option key_value local_actor panel",
        ".programs": "Connected connected",
        ".serve": "AccessOptions TlsOptions web_options",
        ".story": "ClusterWhere",
        ".tables": "Column facts table",
        ".target": "Where load_app shell_word",
        ".termination": "cancelled_by_signals",
    },
)
