"""The places of reports: files, and one of them stdout."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import typer

from ...cli import error_as_json
from ...errors import InvalidInput, MainstayError
from ..report.tables import points_path

#: stands for stdout in place of a path
STDOUT = "-"


@contextlib.contextmanager
def errors_for(json: str | None) -> Iterator[None]:
    """Prints errors as JSON if the JSON of the command goes to stdout."""
    try:
        yield
    except MainstayError as error:
        if json != STDOUT:
            raise
        raise error_as_json(error) from None


def to_stdout(files: Mapping[str, str]) -> str | None:
    """The report that goes to stdout, if any. Refuses two reports at the same place: one would be lost.

    >>> to_stdout({"json": "-", "html": "run.html"})
    'json'
    """
    taken: dict[str, str] = {}
    for kind, path in files.items():
        for place in _places(kind, path):
            other = taken.setdefault(place, kind)
            if other == kind:
                continue
            if path == STDOUT:
                raise InvalidInput(kind, f"--{other} also goes to stdout; name a file for one of them")
            raise InvalidInput(kind, f"{place!r} is the file of --{other} as well; name another one")
    return taken.get(STDOUT)


def _places(kind: str, path: str) -> list[str]:
    if path == STDOUT:
        return [path]
    paths = [Path(path), points_path(Path(path))] if kind == "csv" else [Path(path)]
    # /dev/null takes any number of reports
    return [os.path.realpath(one) for one in paths if one.is_file() or not one.exists()]


def print_content(content: bytes) -> None:
    """Print a report to stdout."""
    typer.echo(content.decode(), nl=not content.endswith(b"\n"))
