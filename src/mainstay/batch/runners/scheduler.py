"""A batch scheduler, by its own commands: one that submits, one that says how a job stands, one that cancels it."""

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
from .port import Outside, OutsideState
from .template import Template

#: Slurm's has the signal behind it
_EXIT_CODE = re.compile(r"(\d{1,5})(?::(\d+))?")
_LONGEST = 300
#: bytes of a command's output that are read
_MOST_PRINTED = 1 << 20
_WORDS: dict[OutsideState, str] = {
    "waiting": "waiting pending queued configuring requeued requeue_hold suspended resv_del_hold special_exit",
    "running": "running completing stopped signaling stage_out resizing active",
    "exited": "exited completed succeeded failed cancelled timeout deadline out_of_memory node_fail preempted "
    "boot_fail done revoked",
    "gone": "gone unknown",
}
#: what schedulers say, Slurm's words among them -> ours
STATES: Mapping[str, OutsideState] = {word: state for state, words in _WORDS.items() for word in words.split()}
#: which state of several tasks counts: the last of these
_LIVELIEST: tuple[OutsideState, ...] = ("gone", "exited", "waiting", "running")


class ExecRunner:
    """Runs units through the commands of a batch scheduler.

    `submit` starts a job, with `{command}` (several words) or `{line}` (one) for what it is to run, and prints what the
    scheduler calls the job: the last line is its handle. `status` prints a word for how `{handle}` stands, and its exit
    code behind it if there is one, in a line for each task of a job array; nothing if the scheduler does not know it.
    `cancel` ends it. `find` prints the
    handle of the job called `{name}`, or nothing: with it, a job is never submitted twice. `states` translates words
    that are not known here. `python` is the interpreter that the command starts with where the job runs, in a container
    for example; by default it is the worker's own.

    No shell reads them; write `sh -c '...'` where one is wanted.

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
        self._submit = Template(submit, holes=("command", "line", "name"), field="submit")
        if not self._submit.uses("command", "line"):
            raise InvalidInput(
                "submit", f"{submit!r} does not say what is to be run; put {{command}} or {{line}} in it"
            )
        self._status = Template(status, holes=("handle", "name"), field="status")
        self._cancel = Template(cancel, holes=("handle", "name"), field="cancel")
        self._find = None if find is None else Template(find, holes=("name",), field="find")
        self._states = {**STATES, **{word.lower(): state for word, state in (states or {}).items()}}
        self._timeout_s = seconds(timeout, field="timeout")
        self.every_s = seconds(every, field="every")

    async def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> str:
        """Submit it, unless `find` finds it."""
        if found := await self._found(name):
            return found
        if self._python is not None:
            command = [self._python, *command[1:]]
        said = await self._run(self._submit.words(command=command, line=command, name=name), env)
        if not said:
            raise RunnerFailed(f"{self._submit.text!r} did not say what it calls the job; it has to print that")
        return said.splitlines()[-1].strip()

    async def look(self, handle: str, name: str) -> Outside:
        """What `status` says."""
        handle = handle or await self._found(name)
        if not handle:
            return Outside(state="gone", detail="it was never submitted, as far as is known")
        said = await self._run(self._status.words(handle=handle, name=name))
        seen = [self._read(line) for line in said.splitlines() if line.strip()]
        if not seen:
            return Outside(state="gone", detail="the scheduler does not know it")
        # a job array has a line for each task: it runs while one does, and failed if one has
        return max(seen, key=lambda one: (_LIVELIEST.index(one.state), bool(one.exit_code)))

    def _read(self, line: str) -> Outside:
        words = re.split(r"[\s|]+", line.strip())
        # Slurm: "CANCELLED by 1000", "CANCELLED+"
        state = self._states.get(words[0].lower().rstrip("+"))
        if state is None:
            raise RunnerFailed(
                f"{self._status.text!r} said {line[:100]!r}, which is not known; say what it means: "
                f"ExecRunner(..., states={{{words[0]!r}: 'running'}})"
            )
        return Outside(state=state, exit_code=_code(words) if state == "exited" else None, detail=words[0])

    async def stop(self, handle: str, name: str) -> None:
        """Run `cancel`. That it fails is fine for a job that is over."""
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
        said = await self._run(self._find.words(name=name))
        return said.splitlines()[-1].strip() if said else ""

    async def _run(self, words: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        """What a command prints. Its words are not told: they may be long, and what it says tells more."""
        program = words[0]
        if shutil.which(program) is None:
            raise RunnerFailed(f"there is no command {program!r} on this machine")
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
                    process.kill()
                    await process.wait()
            said, complaint = _printed(out), _printed(err)
        if process.returncode != 0:
            why = complaint or said
            raise RunnerFailed(f"{program} failed with {process.returncode}: {why[-_LONGEST:] or 'it said nothing'}")
        return said

    def __repr__(self) -> str:
        return f"ExecRunner({self._submit.text!r})"


def _printed(file: IO[bytes]) -> str:
    """The end of what a command has printed."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _MOST_PRINTED))
    return file.read().decode(errors="replace").strip()


def _code(words: Sequence[str]) -> int | None:
    """The exit code behind a state, or minus the signal."""
    found = _EXIT_CODE.fullmatch(words[-1])
    if found is None:
        return None
    return -int(found[2]) if int(found[2] or 0) else int(found[1])
