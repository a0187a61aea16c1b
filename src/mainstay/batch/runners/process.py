"""`exec:COMMAND`: a process on this machine that outlives the worker that started it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ...errors import InvalidInput, RunnerFailed
from ...worker import describe_exit, state_folder
from . import keeper
from .port import OutsideStatus
from .template import Template

#: how long the files of ended processes are kept
_KEPT_S = 30 * 86_400


class _Record(msgspec.Struct, frozen=True):
    host: str
    pid: int

    @property
    def handle(self) -> str:
        return f"{self.host}:{self.pid}"


class ProcessRunner:
    """Runs the command line `command` detached, in its own session: the runner of `runner="exec:..."`.

    Its state is in files of a folder (`MAINSTAY_STATE`, or the user's state folder), which all workers of this machine
    and user share. The output of the command is in NAME.log.
    """

    every_s = 2.0

    def __init__(self, command: str = "{command}", *, folder: str | Path | None = None, grace_s: float = 30.0) -> None:
        self._template = Template(command, placeholders=("command", "line", "name"), field="exec")
        if not self._template.uses("command", "line"):
            raise InvalidInput(
                "exec", f"{command!r} does not contain the command to run; write exec:{command} {{command}}"
            )
        self._folder = None if folder is None else Path(folder)
        self._grace_s = grace_s

    async def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> str:
        """Start it, unless it was started before."""
        return await asyncio.to_thread(self._start, name, command, env)

    async def look(self, handle: str, name: str) -> OutsideStatus:
        """Its status, from its files and its lock."""
        return await asyncio.to_thread(self._look, handle, name)

    async def stop(self, handle: str, name: str) -> None:
        """Send SIGTERM and, after the grace period, SIGKILL."""
        if (await self.look(handle, name)).over:
            return
        record = self._record(name)
        if record is not None:
            try:
                os.kill(record.pid, signal.SIGTERM)
            except ProcessLookupError:
                return
            except PermissionError:
                raise RunnerFailed(f"process {record.handle} belongs to another user; stop it as that user") from None

    def _start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> str:
        if (known := self._record(name)) is not None:
            return known.handle
        self._forget_old()
        words = self._template.words(command=command, line=command, name=name)
        if shutil.which(words[0]) is None:
            raise RunnerFailed(f"command {words[0]!r} does not exist on this machine ({socket.gethostname()})")
        output = self._path(name, "log")
        started, ready = os.pipe()
        try:
            with open(os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), "ab") as log:
                process = subprocess.Popen(  # noqa: S603 - our own file, and what the user wrote
                    [
                        *(sys.executable, "-I", "-S", keeper.__file__),
                        *(str(self._path(name, "log").parent), name, str(self._grace_s), str(ready)),
                        *words,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **env},
                    pass_fds=(ready,),
                    start_new_session=True,
                )
            os.close(ready)
            ready = -1
            process.wait()
            os.read(started, 1)  # returns at the end of the pipe, when the record is written
        except OSError as error:
            raise RunnerFailed(f"a process cannot be started on {socket.gethostname()}: {error}") from error
        finally:
            os.close(started)
            if ready >= 0:
                os.close(ready)
        record = self._record(name)
        if record is None:
            raise RunnerFailed(f"the process was not started; see {output}")
        return record.handle

    def _look(self, handle: str, name: str) -> OutsideStatus:
        record, this_host = self._record(name), socket.gethostname()
        its_host = handle.rpartition(":")[0] if record is None else record.host
        if its_host not in ("", this_host):
            raise RunnerFailed(f"it was started on {its_host}, and this is {this_host}; check it there")
        if record is None:
            return OutsideStatus(state="gone", detail=f"it is unknown on {this_host}")
        # the lock first: the exit code is written before the lock is released
        held = self._is_held(name)
        try:
            code = int(self._path(name, "exit").read_text())
        except FileNotFoundError:
            if held:
                return OutsideStatus(state="running")
            return OutsideStatus(state="gone", detail="it left no exit code: it was killed, or the machine went down")
        return OutsideStatus(state="exited", exit_code=code, detail="" if code >= 0 else describe_exit(code))

    def _is_held(self, name: str) -> bool:
        try:
            lock = os.open(self._path(name, "lock"), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def _record(self, name: str) -> _Record | None:
        try:
            return msgspec.json.decode(self._path(name, "json").read_bytes(), type=_Record)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise RunnerFailed(f"{self._path(name, 'json')} cannot be read: {error}") from error

    def _path(self, name: str, what: str) -> Path:
        if self._folder is None:
            self._folder = state_folder("runners")
        return self._folder / f"{name}.{what}"

    def _forget_old(self) -> None:
        old = time.time() - _KEPT_S
        for ended in self._path("x", "x").parent.glob("*.exit"):
            if ended.stat().st_mtime < old:
                for what in ("json", "lock", "log", "exit"):
                    ended.with_suffix(f".{what}").unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"ProcessRunner({self._template.text!r})"
