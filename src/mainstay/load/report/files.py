"""Reports as files. A file is written completely or not at all, and a run checks first whether it can be written."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast, get_args

from ...errors import InvalidInput, UnknownOption
from ..blocking_work import BackgroundThread
from ..stats.model import Header, Moment, StepStats, Summary
from ..stats.sums import WindowSum
from ..stats.tally import to_json
from .histograms import hdr_text, needed_steps, otlp_json
from .junit import junit_xml
from .tables import points_csv, points_path, steps_csv

Kind = Literal["html", "json", "csv", "junit", "hdr", "otlp"]
#: reports of the histograms of steps, which a summary does not have
OF_STEPS = ("hdr", "otlp")


def write_report(
    kind: str, path: str | Path, summary: Summary, *, steps: Sequence[StepStats] | None = None
) -> list[Path]:
    """Write a report now, and return the written files. The kinds hdr and otlp need `steps`, with their histograms."""
    output = FileOutput(_known(kind), Path(path))
    output.check()
    return output.write(summary, steps)


def report_content(
    kind: str, summary: Summary, *, strict: bool = False, steps: Sequence[StepStats] | None = None
) -> bytes:
    """A report as bytes. CSV has two tables; this is the one of the steps."""
    content, *_ = report_files(_known(kind), Path("report"), summary, strict=strict, steps=steps).values()
    return content


def report_files(
    kind: Kind, path: Path, summary: Summary, *, strict: bool = False, steps: Sequence[StepStats] | None = None
) -> dict[Path, bytes]:
    """The content of each file. `strict`: a result that is not trustworthy has not passed."""
    if kind == "csv":
        return {path: steps_csv(summary).encode(), points_path(path): points_csv(summary).encode()}
    if kind in OF_STEPS:
        known = needed_steps(steps, field=kind)
        return {path: hdr_text(summary, known).encode() if kind == "hdr" else otlp_json(summary, known)}
    if kind == "html":
        from .page import load_html  # noqa: PLC0415 - the template engine, which other reports do not need

        return {path: load_html(summary).encode()}
    return {path: junit_xml(summary, strict=strict).encode() if kind == "junit" else to_json(summary)}


class FileOutput:
    """An `Output` that writes the summary at the end, or histograms that it adds up during the run.

    >>> FileOutput("html", Path("shop.html")).name
    'html shop.html'
    """

    def __init__(self, kind: Kind, path: Path, *, strict: bool = False) -> None:
        self.name = f"{kind} {path}"
        self._strict = strict
        self._kind = kind
        self._path = path
        # these reports have no errors, so one kind is enough
        self._totals = WindowSum(most=1) if kind in OF_STEPS else None

    def check(self) -> None:
        """Raise if the files could not be written at the end. A command calls it before anything else."""
        for path in (self._path, points_path(self._path)) if self._kind == "csv" else (self._path,):
            _check(self._kind, path)

    async def start(self, header: Header) -> None:  # noqa: ARG002 - part of the protocol
        self.check()

    def add(self, moment: Moment) -> None:
        if self._totals is not None:
            self._totals.add(moment.window)

    async def stop(self, summary: Summary) -> None:
        steps = None if self._totals is None else self._totals.window().steps
        await asyncio.wrap_future(BackgroundThread().submit(self.write, summary, steps))

    def write(self, summary: Summary, steps: Sequence[StepStats] | None = None) -> list[Path]:
        """Write the files, and return their paths."""
        contents = report_files(self._kind, self._path, summary, strict=self._strict, steps=steps)
        for path, content in contents.items():
            write_whole(self._kind, path, content)
        return list(contents)


def write_whole(field: str, path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old or the new content, never a part. `field` is the option that named the
    file."""
    target = Path(os.path.realpath(path))  # a link stays a link
    try:
        if target.exists() and not target.is_file():  # a pipe or a device is written directly
            target.write_bytes(content)
        else:
            _replace(target, content)
    except OSError as error:
        raise InvalidInput(field, f"{str(path)!r} cannot be written: {error.strerror}") from None


def _replace(target: Path, content: bytes) -> None:
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        fresh.write_bytes(content)
        fresh.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def _check(field: str, path: Path) -> None:
    folder = path.parent
    if path.is_dir():
        raise InvalidInput(field, f"{str(path)!r} is a folder; name a file in it")
    if not folder.is_dir():
        raise InvalidInput(
            field, f"the folder {str(folder)!r} does not exist; create it, or name a file in another folder"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidInput(field, f"{str(folder)!r} is not writable; name a file in another folder")


def _known(kind: str) -> Kind:
    if kind not in get_args(Kind):
        raise UnknownOption(kind, get_args(Kind))
    return cast("Kind", kind)
