"""`mainstay load new`: write a load test to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ...cli import CommandOutput, print_command
from ...errors import InvalidInput

#: text, not a module: a module could be imported by mistake
_TEMPLATE = Path(__file__).with_name("template.txt")


def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> CommandOutput:
    """Write a sample load test that runs as it is, against the target server of `mainstay load target`.

    An existing file is not overwritten without --force.

    Exit codes: 0 written, 2 error.

    [bold]Examples[/bold]

      mainstay load new shop.py
      mainstay load target
      mainstay load run shop.py
    """
    if file.is_dir():
        raise InvalidInput("file", f"{file} is a folder; name a file in it: {file / 'shop.py'}")
    if file.suffix != ".py":
        raise InvalidInput("file", f"{file} is not a Python file; name it {file.with_suffix('.py')}")
    name = shlex.quote(str(file))
    text = _TEMPLATE.read_text(encoding="utf-8").replace("FILE", name.replace("\\", "\\\\").replace('"', '\\"'))
    try:
        with file.open("w" if force else "x", encoding="utf-8") as to:
            to.write(text)
    except FileExistsError:
        raise InvalidInput("file", f"{file} already exists; choose another name, or pass --force") from None
    except OSError as error:
        raise InvalidInput("file", f"{file} cannot be written ({error.strerror or error})") from None
    commands = ["mainstay load target", f"mainstay load run {name}"]

    def show(console: Console) -> None:
        console.print(f"{file} is written; try it in two terminals:", markup=False, soft_wrap=True)
        for line in commands:
            print_command(line, console)

    return CommandOutput({"file": str(file), "commands": commands}, show)
