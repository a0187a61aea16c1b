"""An engine process as its supervisor sees it: its start, its link, its end.

It is spawned, never forked: a fork would copy locks that other threads hold. Its end is an event (a pidfd gets
readable); nothing polls for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

import msgspec

from .exits import on_exit
from .messages import EngineConfig, FromEngine, Pulsed, ToEngine, line
from .recorder import Recorder
from .solo_turn import SoloTurn

log = logging.getLogger("mainstay.worker")

#: the command of an engine; `mainstay.worker.engine_main` reads its one argument
ENGINE = (sys.executable, "-m", "mainstay.worker.engine_main")

#: signals that stop a worker; they are for the supervisor, which informs its engines over their links
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_READ = 65_536
_decoder: msgspec.json.Decoder[FromEngine] = msgspec.json.Decoder(FromEngine)


def leave_stopping_to_the_supervisor() -> None:
    """An engine calls this first: Ctrl-C and service managers signal every process of a group, and only the supervisor
    knows what to do.

    It sets handlers that do nothing instead of `SIG_IGN`, because processes that an engine starts do not inherit them.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _ignore(*_: object) -> None:
    pass


class EngineHandle:
    """One engine: its process, its link, its recorder. Created by `spawn`, on the loop that receives its messages."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        link: socket.socket,
        recorder: Recorder,
        receive: Callable[[FromEngine], None],
    ) -> None:
        self.recorder = recorder
        self._process = process
        self._link = link
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()
        self._unsent = bytearray()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        """its exit status once it has ended: a code, or minus the signal that killed it"""
        link.setblocking(False)
        self._loop.add_reader(link, self._read)
        on_exit(process.pid, self._ended)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: ToEngine) -> None:
        """Send a message; never waits. A stuck engine does not get every heartbeat: the next one says the same."""
        if self.ended.done() or (self._unsent and isinstance(message, Pulsed)):
            return
        self._unsent += line(message)
        self._write()

    def kill(self) -> None:
        """SIGKILL: also ends a process that is stopped or blocked."""
        if not self.ended.done():
            self._process.kill()

    def close(self) -> None:
        """Release its resources once it has ended."""
        self._close_link()
        self.recorder.close()

    # the link -----------------------------------------------------------------------------------

    def _read(self) -> None:
        while True:
            try:
                data = self._link.recv(_READ)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._loop.remove_reader(self._link)
                return
            self._unread += data
            *lines, rest = self._unread.split(b"\n")
            self._unread = bytearray(rest)
            for text in lines:
                self._decode(bytes(text))

    def _decode(self, text: bytes) -> None:
        try:
            message = _decoder.decode(text)
        except msgspec.MsgspecError as error:
            # perhaps it is of another version: go on with its other messages
            log.warning("unknown message from engine pid=%d: %s", self.pid, error)
            return
        self._receive(message)

    def _write(self) -> None:
        try:
            while self._unsent:
                sent = self._link.send(self._unsent)
                del self._unsent[:sent]
        except BlockingIOError:
            self._loop.add_writer(self._link, self._write)
            return
        except OSError:  # it is dying: its pidfd reports its end
            self._unsent.clear()
        self._loop.remove_writer(self._link)

    def _close_link(self) -> None:
        if self._link.fileno() >= 0:
            self._loop.remove_reader(self._link)
            self._loop.remove_writer(self._link)
            self._link.close()

    # its end ------------------------------------------------------------------------------------

    def _ended(self) -> None:
        status = self._process.wait()
        # its last messages may still be in the link
        self._read()
        self._close_link()
        if not self.ended.done():
            self.ended.set_result(status)


class OsProcesses:
    """`Processes` of this machine. The engines share the lock on running a job alone.

    `command` starts an engine; its configuration is added as the last argument.
    """

    def __init__(self, command: Sequence[str] = ENGINE) -> None:
        self._command = command
        self._solo_turn = SoloTurn.create()

    @property
    def pid(self) -> int:
        return os.getpid()

    def spawn(self, config: EngineConfig, receive: Callable[[FromEngine], None]) -> EngineHandle:
        lock = self._solo_turn.fd
        return spawn(
            lambda link_fd, recorder_fd: msgspec.structs.replace(
                config, link_fd=link_fd, recorder_fd=recorder_fd, solo_fd=lock
            ),
            receive,
            self._command,
            shared_fds=(lock,),
        )

    def close(self) -> None:
        self._solo_turn.close()


def spawn(
    config: Callable[[int, int], EngineConfig],
    receive: Callable[[FromEngine], None],
    command: Sequence[str] = ENGINE,
    *,
    shared_fds: Sequence[int] = (),
) -> EngineHandle:
    """Start an engine. `config` makes its configuration from the file descriptors of its link and its recorder; it also
    inherits `shared_fds`.

    Call it on the thread of the supervisor: an engine dies with the thread that started it.
    """
    recorder = Recorder.create()
    ours, theirs = socket.socketpair()
    # until it has its own handlers, a signal to the group must not stop it: the mask is inherited
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        text = msgspec.json.encode(config(theirs.fileno(), recorder.fd)).decode()
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [*command, text], stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(), recorder.fd, *shared_fds)
        )
    except BaseException:
        ours.close()
        recorder.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
    return EngineHandle(process, ours, recorder, receive)
