"""`mainstay submit`: submit a job, and wait for it with `--wait`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ...cli import (
    CommandOutput,
    Connected,
    ForOption,
    JsonOption,
    Where,
    aside,
    busy,
    command,
    completion,
    connected,
    error_data,
    panel,
    print_json,
    printable,
    stderr_console,
    using,
)
from ...cli.exits import FAILED, NO
from ...clock import seconds
from ...control import Control, InsertResult, TaskDefaults, with_task_defaults
from ...control.explain import is_alive
from ...errors import InvalidInput, MainstayError
from ...kinds import kinds, part
from ...model import Job
from ...words import counted
from .arguments import STDIN, TypedArguments, read
from .options import Flags
from .submission import Checked, CheckedNow, Maker, Stored, Unchecked, how_to_continue, lines_of, submit_lines, task_of

_more = panel("More arguments")


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "submit")(submit)


def submit(
    where: Where,
    flags: Flags,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name of the task, load test or node job.", autocompletion=completion.tasks
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Arguments; - reads a JSON object from stdin."),
    ] = None,
    args: Annotated[str | None, _more("--args", metavar="JSON", help="Arguments as a JSON object.")] = None,
    args_file: Annotated[
        str | None, _more("--args-file", metavar="FILE", help="File with the arguments as a JSON object.")
    ] = None,
    jsonl: Annotated[
        str | None,
        _more("--jsonl", metavar="FILE", help="Submit one job for each line, a JSON object of arguments; - for stdin."),
    ] = None,
    from_line: Annotated[int, _more("--from-line", min=1, help="First line of the file to submit.")] = 1,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait until the job is settled, and print its result.")
    ] = False,
    for_: ForOption = None,
    as_json: JsonOption = False,
) -> CommandOutput:
    """Submit a job of a task, a run of a load test or a node job of the app, and print its id.

    With --app the task checks the arguments and adds its own options. With only a store nothing is checked: the
    arguments are stored as typed, and the worker checks them; queue and options of the task are those that a live
    worker offers.

    Values are read as JSON if possible, else as text; the task converts them to the types it declares, so to=42 is text
    for a str.

    The arguments of a load test override the values of its classes: vus=500 duration=1m params.user=ann. Its job waits
    in the queue that app.load named for it, or in --queue. A node job has no queue: it runs on the nodes.

    With --wait the result is printed as JSON, and the id goes to stderr.

    With --jsonl each line of a file becomes a job. Jobs are stored in chunks of 1000, each whole or not at all; an
    error names the line to continue from. With --key as well, you can submit the same file again without duplicates.

    Exit codes: 0 submitted (with --wait: it succeeded), 1 it settled otherwise, 2 error, or not settled within --for,
    130 Ctrl-C. A job continues when the command stops waiting.

    [bold]Examples[/bold]

      mainstay submit mail.send to=a@b.c subject=hi --app shop.tasks:app
      mainstay submit report.build --args '{"days": [1, 2]}' --delay 5m
      mainstay submit report.build day=monday --wait --for 2m
      mainstay submit mail.send --jsonl mails.jsonl --key june-letter
      mainstay submit shop vus=500 duration=1m --queue load --app nightly:app
    """
    for_s = None if for_ is None else seconds(for_, field="for")
    given = read(words or (), args, args_file)
    if where.target().url.startswith("memory:"):
        raise InvalidInput("store", "memory: ends with this command, and so does the job; name a store that stays")
    waits = wait or for_s is not None
    if jsonl is None:
        return using(
            connected(where, creates=True),
            lambda to: _submit_one(to, flags, name, given, where, waits=waits, for_s=for_s, as_json=as_json),
        )
    if waits:
        raise InvalidInput("wait", "waits for one job, but --jsonl submits many; watch them with mainstay jobs watch")
    if given.data:
        raise InvalidInput("jsonl", "each line has its own arguments; write shared arguments as key=value")
    if flags.on_clash == "replace":
        raise InvalidInput("on_clash", "'replace' works for one job at a time, but --jsonl submits many")
    stored = Stored(next_line=from_line)
    try:
        validated = using(
            connected(where, creates=True),
            lambda to: _submit_file(to, flags, name, given, jsonl, stored, quiet=as_json),
        )
    except MainstayError as error:
        if not as_json:
            raise
        return CommandOutput(stored.data(error=error_data(error)), "", exit_code=FAILED)
    return CommandOutput(stored.data(validated=validated), lambda _: _show_stored(stored, validated=validated))


async def _submit_one(
    to: Connected,
    flags: Flags,
    name: str,
    given: TypedArguments,
    where: Where,
    *,
    waits: bool,
    for_s: float | None,
    as_json: bool,
) -> CommandOutput:
    maker = await _maker(to, name, await flags.options(to.control.store))
    request = maker.request(given)
    if isinstance(maker, CheckedNow):
        await maker.check(request, to.control)
    submitted = await to.control.jobs.submit_request(request)
    data = {"id": submitted.id, "created": submitted.created, "validated": maker.validated}
    if not waits:
        return CommandOutput(data, lambda _: _show_id(submitted, validated=maker.validated, to_stderr=False))
    if not as_json:
        _show_id(submitted, validated=maker.validated, to_stderr=True)
    try:
        job = await _settled(to.control, submitted.id, for_s, quiet=as_json)
        result = await maker.result(job) if job.status == "succeeded" else None
    except MainstayError as error:
        if not as_json:
            raise
        # the job is submitted all the same: print its id
        return CommandOutput({**data, "error": error_data(error)}, "", exit_code=FAILED)
    data |= {**_ending(job), "result": result}
    if job.status == "succeeded":
        return CommandOutput(data, lambda _: print_json(result))
    return CommandOutput(data, lambda _: _show_failure(job, where), exit_code=NO)


async def _submit_file(
    to: Connected, flags: Flags, name: str, given: TypedArguments, path: str, stored: Stored, *, quiet: bool
) -> bool:
    """Submit a job for each line; whether a task has validated the arguments."""
    options = await flags.options(to.control.store)
    key = options.pop("key", None)
    maker = await _maker(to, name, options)
    try:
        with _file(path) as file, _bar(path, stored, quiet=quiet) as on_read:
            lines = lines_of(file, start=stored.next_line, on_read=on_read)
            await submit_lines(to.control, maker, lines, given, stored, key=key)
    except asyncio.CancelledError:
        aside(f"stopped: {how_to_continue(stored)}")
        raise
    return maker.validated


def _show_stored(stored: Stored, *, validated: bool) -> None:
    if not validated:
        _warn_unvalidated()
    repeated = len(stored.jobs) - stored.created
    note = f" ({repeated:,} submitted before)" if repeated else ""
    typer.echo(f"{counted(len(stored.jobs), 'job')} submitted{note}")


async def _maker(to: Connected, name: str, options: dict[str, Any]) -> Maker:
    if to.app is None:
        defaults = await TaskDefaults(to.control.store).of([name])
        return Unchecked(to.control, name, with_task_defaults(options, defaults.get(name, {})))
    if not to.app.part("task").declares(name):
        for kind in kinds():
            if kind.submission and to.app.part(kind.name).declares(name):
                maker: Maker = part(kind.submission)(to.app, name, options)
                return maker
    return Checked(task_of(to.app, name), options)


def _show_id(submitted: InsertResult, *, validated: bool, to_stderr: bool) -> None:
    if not validated:
        _warn_unvalidated()
    if not submitted.created:
        aside("was submitted before; nothing new was stored:")
    if to_stderr:
        aside(submitted.id, style="dim")
    else:
        typer.echo(submitted.id)


def _warn_unvalidated() -> None:
    aside("nothing was validated: without --app the task's arguments, queue and options are not known")


async def _settled(control: Control, job_id: str, for_s: float | None, *, quiet: bool) -> Job:
    lease_ms = control.store.clock.lease_ms()
    if not quiet and not any(is_alive(session, lease_ms) for session in await control.store.sessions()):
        aside("no worker is alive now; the job waits for one")
    with busy("waiting", quiet=quiet):
        return await control.jobs.wait(job_id, None if for_s is None else f"{for_s}s")


def _ending(job: Job) -> dict[str, Any]:
    error = job.error
    return {
        "status": job.status,
        "reason": job.reason,
        "failure": None if error is None else {"type": error.type, "code": error.code, "message": error.message},
    }


def _show_failure(job: Job, where: Where) -> None:
    causes = [text for text in (job.reason, job.error and f"{job.error.type}: {job.error.message}") if text]
    failure = f"job {job.id} ended {job.status}" + (f": {' / '.join(causes)}" if causes else "")
    aside(printable(failure), style="bold red")
    aside(where.again(f"mainstay jobs explain {job.id}"), style="cyan")


@contextlib.contextmanager
def _file(path: str) -> Iterator[IO[bytes]]:
    if path == STDIN:
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed below; errors of the body must not be caught here
    except OSError as error:
        raise InvalidInput("jsonl", f"{path!r} cannot be read: {error.strerror}") from None
    with file:
        yield file


@contextlib.contextmanager
def _bar(path: str, stored: Stored, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Progress by bytes: the lines of the file are not counted beforehand."""
    console = stderr_console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    total = None if path == STDIN else Path(path).stat().st_size
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("submitting", total=total)
        yield lambda n: bar.update(task, advance=n, description=f"{len(stored.jobs):,} stored")
