"""A runner for batch schedulers, through their commands: to submit a job, to print its state, to cancel it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import IO

from ...clock import seconds
from ...errors import InvalidInput, RunnerFailed
from ...process_end import kill_process
from .port import OutsideState, OutsideStatus
from .template import Template

#: Slurm appends the signal
_EXIT_CODE = re.compile(r"(\d{1,5})(?::(\d+))?")
_LONGEST = 300
#: bytes read of a command's output
_MOST_PRINTED = 1 << 20
_WORDS: dict[OutsideState, str] = {
    "waiting": "waiting pending queued configuring requeued requeue_hold suspended resv_del_hold special_exit",
    "running": "running completing stopped signaling stage_out resizing active",
    "exited": "exited completed succeeded failed cancelled timeout deadline out_of_memory node_fail preempted "
    "boot_fail done revoked",
    "gone": "gone unknown",
}
#: our state for each word of schedulers, such as Slurm
STATES: Mapping[str, OutsideState] = {word: state for state, words in _WORDS.items() for word in words.split()}
#: the state of a job with several tasks is the last of these
_LIVELIEST: tuple[OutsideState, ...] = ("gone", "exited", "waiting", "running")


class ExecRunner:
    """Runs units through the commands of a batch scheduler.

    `submit` starts a job that runs `{command}` (several words) or `{line}` (one word); the last line that it prints is
    the handle. `status` prints the state of `{handle}`, followed by its exit code if there is one, in a line for each
    task of a job array; it prints nothing if the scheduler does not know the job. `cancel` ends it. `find` prints the
    handle of the job `{name}`, or nothing: with it, a job is never submitted twice. `states` adds words for states.
    `python` is the interpreter where the job runs, in a container for example. Default: the worker's own.

    The commands run without a shell; write `sh -c '...'` to use one.

    >>> ExecRunner(
    ...     submit="sbatch --parsable --job-name {name} --wrap {line}",
    ...     status="sacct -X -n -P -o State,ExitCode -j {handle}",
    ...     cancel="scancel {handle}",
    ...     find="sacct -X -n -P -o JobID --name {name}",
    ... )
    ExecRunner('sbatch --parsable --job-name {name} --wrap {line}')
    """

    def __init__(
        self,
        *,
        submit: str,
        status: str,
        cancel: str,
        find: str | None = None,
        states: Mapping[str, OutsideState] | None = None,
        every: str | timedelta = "30s",
        timeout: str | timedelta = "60s",
        python: str | None = None,
    ) -> None:
        self._python = python
        self._submit = Template(submit, placeholders=("command", "line", "name"), field="submit")
        if not self._submit.uses("command", "line"):
            raise InvalidInput(
                "submit", f"{submit!r} does not contain the command to run; put {{command}} or {{line}} in it"
            )
        self._status = Template(status, placeholders=("handle", "name"), field="status")
        self._cancel = Template(cancel, placeholders=("handle", "name"), field="cancel")
        self._find = None if find is None else Template(find, placeholders=("name",), field="find")
        self._states = {**STATES, **{word.lower(): state for word, state in (states or {}).items()}}
        self._timeout_s = seconds(timeout, field="timeout")
        self.every_s = seconds(every, field="every")

    async def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> str:
        """Submit it, unless `find` finds it."""
        if handle := await self._found(name):
            return handle
        if self._python is not None:
            command = [self._python, *command[1:]]
        output = await self._run(self._submit.words(command=command, line=command, name=name), env)
        if not output:
            raise RunnerFailed(f"{self._submit.text!r} printed no handle of the job")
        return output.splitlines()[-1].strip()

    async def look(self, handle: str, name: str) -> OutsideStatus:
        """Its status, by the command `status`."""
        handle = handle or await self._found(name)
        if not handle:
            return OutsideStatus(state="gone", detail="it was probably never submitted")
        output = await self._run(self._status.words(handle=handle, name=name))
        tasks = [self._read(line) for line in output.splitlines() if line.strip()]
        if not tasks:
            return OutsideStatus(state="gone", detail="the scheduler does not know it")
        # a job array runs while one task runs, and has failed if one has
        return max(tasks, key=lambda one: (_LIVELIEST.index(one.state), bool(one.exit_code)))

    def _read(self, line: str) -> OutsideStatus:
        words = re.split(r"[\s|]+", line.strip())
        # Slurm: "CANCELLED by 1000", "CANCELLED+"
        state = self._states.get(words[0].lower().rstrip("+"))
        if state is None:
            raise RunnerFailed(
                f"{self._status.text!r} printed {line[:100]!r}, an unknown state; map it: "
                f"ExecRunner(..., states={{{words[0]!r}: 'running'}})"
            )
        return OutsideStatus(state=state, exit_code=_code(words) if state == "exited" else None, detail=words[0])

    async def stop(self, handle: str, name: str) -> None:
        """Run `cancel`. Its failure is ignored for a job that is over."""
        handle = handle or await self._found(name)
        if not handle:
            return
        try:
            await self._run(self._cancel.words(handle=handle, name=name))
        except RunnerFailed:
            if not (await self.look(handle, name)).over:
                raise

    async def _found(self, name: str) -> str:
        if self._find is None:
            return ""
        output = await self._run(self._find.words(name=name))
        return output.splitlines()[-1].strip() if output else ""

    async def _run(self, words: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        """The output of a command. Errors name the program, not its arguments, which may be long."""
        program = words[0]
        if shutil.which(program) is None:
            raise RunnerFailed(f"command {program!r} does not exist on this machine")
        # Files, not pipes: a pipe ends when its last holder does, and a command may leave a process in the background
        # that inherited it. Under uvloop that happens even if the background process redirects all of its output.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(env or {})},
            )
            try:
                async with asyncio.timeout(self._timeout_s):
                    await process.wait()
            except TimeoutError:
                raise RunnerFailed(f"{program} did not answer within {self._timeout_s:g}s") from None
            finally:
                if process.returncode is None:
                    await kill_process(process)
            output, error_output = _printed(out), _printed(err)
        if process.returncode != 0:
            why = error_output or output
            raise RunnerFailed(f"{program} failed with {process.returncode}: {why[-_LONGEST:] or 'no output'}")
        return output

    def __repr__(self) -> str:
        return f"ExecRunner({self._submit.text!r})"


def _printed(file: IO[bytes]) -> str:
    """The end of a command's output."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _MOST_PRINTED))
    return file.read().decode(errors="replace").strip()


def _code(words: Sequence[str]) -> int | None:
    """The exit code after a state, or minus the signal."""
    match = _EXIT_CODE.fullmatch(words[-1])
    if match is None:
        return None
    return -int(match[2]) if int(match[2] or 0) else int(match[1])
