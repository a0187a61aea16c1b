"""An engine process, seen from its supervisor: start it, talk to it, see it die.

It is spawned, never forked: a fork would copy locks that other threads hold. Its death is an event (a pidfd gets
readable), not something that is noticed by asking.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

import msgspec

from .exits import on_exit
from .messages import EngineConfig, FromEngine, Pulsed, ToEngine, line
from .recorder import Recorder

log = logging.getLogger("mainstay.worker")

#: what is run; `mainstay.worker.engine_main` reads its one argument
ENGINE = (sys.executable, "-m", "mainstay.worker.engine_main")

#: what stops a worker is said to its supervisor; engines hear of it over their link
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_READ = 65_536
_decoder: msgspec.json.Decoder[FromEngine] = msgspec.json.Decoder(FromEngine)


def leave_stopping_to_the_supervisor() -> None:
    """For an engine, first of all: Ctrl-C and a service manager reach every process of a group, and only the
    supervisor knows what to do about it.

    Handlers that do nothing, instead of `SIG_IGN`: what an engine runs does not inherit them.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, _left_to_the_supervisor)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _left_to_the_supervisor(*_: object) -> None:
    pass


class EngineHandle:
    """One engine: its process, its link, its recorder. Made by `spawn`, on the loop that shall hear of it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        link: socket.socket,
        recorder: Recorder,
        hear: Callable[[FromEngine], None],
    ) -> None:
        self.recorder = recorder
        self._process = process
        self._link = link
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()
        self._unsent = bytearray()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        """its exit status once it is dead: a code, or minus the signal that killed it"""
        link.setblocking(False)
        self._loop.add_reader(link, self._read)
        on_exit(process.pid, self._died)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: ToEngine) -> None:
        """Say something; never waits. A stuck engine is not told of every beat: the next one says it all again."""
        if self.ended.done() or (self._unsent and isinstance(message, Pulsed)):
            return
        self._unsent += line(message)
        self._write()

    def kill(self) -> None:
        """SIGKILL: also ends what is stopped, blocked, or deaf."""
        if not self.ended.done():
            self._process.kill()

    def close(self) -> None:
        """Let go of it once it is dead."""
        self._hang_up()
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
                self._heard(bytes(text))

    def _heard(self, text: bytes) -> None:
        try:
            message = _decoder.decode(text)
        except msgspec.MsgspecError as error:
            # of another version, perhaps: not understood is no reason to stop listening
            log.warning("engine said something odd pid=%d: %s", self.pid, error)
            return
        self._hear(message)

    def _write(self) -> None:
        try:
            while self._unsent:
                sent = self._link.send(self._unsent)
                del self._unsent[:sent]
        except BlockingIOError:
            self._loop.add_writer(self._link, self._write)
            return
        except OSError:  # it is dying: its end is told by its pidfd
            self._unsent.clear()
        self._loop.remove_writer(self._link)

    def _hang_up(self) -> None:
        if self._link.fileno() >= 0:
            self._loop.remove_reader(self._link)
            self._loop.remove_writer(self._link)
            self._link.close()

    # its death ----------------------------------------------------------------------------------

    def _died(self) -> None:
        status = self._process.wait()
        # its last words may still be in the link
        self._read()
        self._hang_up()
        if not self.ended.done():
            self.ended.set_result(status)


def spawn(
    config: Callable[[int, int], EngineConfig],
    hear: Callable[[FromEngine], None],
    command: Sequence[str] = ENGINE,
    *,
    shared_fds: Sequence[int] = (),
) -> EngineHandle:
    """Start an engine. `config` makes its configuration from the numbers of its link and of its recorder; files in
    `shared_fds` are inherited besides.

    Call it on the thread the supervisor lives on: an engine is made to die with the thread that started it.
    """
    recorder = Recorder.create()
    ours, theirs = socket.socketpair()
    # until it has handlers of its own, what stops the group must not stop it: the mask is inherited
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
    return EngineHandle(process, ours, recorder, hear)
