"""Waking idle processes: a datagram socket per event loop, and a registration file per topic.

A subscriber puts an empty file named after itself into the folder of each topic. Whoever commits a change takes
registrations away (unlinking a file succeeds for exactly one) and rings at the subscribers' sockets. A missing
registration is the wake itself, and nothing else is; the datagram only says where to look. So a datagram that
was dropped, came late or came twice loses and invents nothing. For a queue, n new jobs take at most n
registrations: those who sleep before those who are awake and would look only later; the first letter of the
file's name tells them apart. One that was taken and goes away without looking passes the wake on.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Container, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ..change_check import topics
from .engine import SqliteTx

_ASLEEP, _AWAKE = "a", "b"
_OTHER = {_ASLEEP: _AWAKE, _AWAKE: _ASLEEP}
_MOST_PATH = 100  # a Unix socket's path may have 107 bytes
_OVERFULL = ".full"  # beside a socket: doorbells were dropped, look at every registration
_JOB = "job-"  # what the folder of a job's topic is called, before its id
_JOB_TOPIC = re.compile(r"job:[0-9a-f-]{36}")
_UNBORN = "new-"  # a socket file between being made and being bound


class WakeBoard:
    """All subscriptions of one open store, and the sending side."""

    def __init__(self, folder: Path) -> None:
        self._topics = folder / "topics"
        self._sockets = folder / "sockets"
        self._topics.mkdir(parents=True, exist_ok=True)
        self._sockets.mkdir(exist_ok=True)
        self._numbers = itertools.count(1)
        self._ears: dict[asyncio.AbstractEventLoop, _Ear] = {}
        self._ears_lock = threading.Lock()
        self._rng = random.Random(os.urandom(8))
        with contextlib.ExitStack() as undo:
            self._folder_handle = os.open(self._sockets, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            undo.callback(os.close, self._folder_handle)
            self._sender = undo.enter_context(_new_socket())
            self._sweep()
            undo.pop_all()

    def subscribe(self, topics: Sequence[str]) -> SocketWake:
        ear = self._ear()
        name = f"{ear.name}.{next(self._numbers)}"
        wake = SocketWake(self, ear, name, topics)
        ear.waiting[name] = wake
        wake.register()
        return wake

    def folder_of(self, topic: str) -> Path:
        return self._topics / _folder_name(topic)

    def after_commit(self, effects: Sequence[SqliteTx]) -> None:
        """Wake whoever waits for what was written. Who is woken is worked out only if anybody waits at all."""
        # most file systems count a folder's folders in its links: two means none, anything else has to be looked at
        if self._topics.stat().st_nlink == 2:
            return
        subscribed = set(os.listdir(self._topics))
        if not subscribed:
            return
        woken: Counter[str] = Counter()
        for tx in effects:
            woken.update(tx.woken)
            for before, after, _ in tx.written:
                # thousands settle for each that somebody waits for
                if after.settled_ms is None or _JOB + after.id in subscribed:
                    woken.update(topics(before, after))
        self.notify(woken, subscribed)

    def notify(self, woken: Counter[str], subscribed: Container[str]) -> None:
        for topic, n in woken.items():
            name = _folder_name(topic)
            if name not in subscribed:
                continue
            folder = self._topics / name
            try:
                names = [name for name in os.listdir(folder) if name[0] in _OTHER]
            except FileNotFoundError:  # the last one to leave took the folder away
                continue
            most = len(names)
            if topic.startswith("queue:"):
                most = n
                self._rng.shuffle(names)
                names.sort(key=lambda name: name[0])
            if not self._take_and_send(folder, names, most):
                # whoever was told will be back, or takes the folder along; of the dead nobody else will
                _remove(folder)

    def close(self) -> None:
        with self._ears_lock:
            for loop in list(self._ears):
                self._ears.pop(loop).close()
        self._sender.close()
        os.close(self._folder_handle)

    def _take_and_send(self, folder: Path, names: list[str], n: int) -> int:
        """Wake at most n of those that were seen there; how many were."""
        told = 0
        for name in names:
            if told == n:
                break
            # one that we saw awake may have fallen asleep since: it looked before our commit and must not be missed
            taken = _unlink(folder / name) or _unlink(folder / (_OTHER[name[0]] + name[1:]))
            if taken and self._send(name[1:]):
                told += 1
        return told

    def _send(self, name: str) -> bool:
        """Ring for one subscription; False if there is nobody to hear it."""
        ear = _ear_of(name)
        try:
            try:
                self._sender.sendto(name.encode(), self._address(ear))
            except BlockingIOError:
                (self._sockets / (ear + _OVERFULL)).touch()
                # again, and from a socket without a backlog of its own: either it gets through, or the ear has
                # doorbells to answer still, and it looks for the file after those
                with _new_socket() as fresh, contextlib.suppress(BlockingIOError):
                    fresh.sendto(name.encode(), self._address(ear))
        except (ConnectionRefusedError, FileNotFoundError):
            self._bury(ear)
            return False
        except OSError:
            return False
        return True

    def _bury(self, ear: str) -> None:
        _unlink(self._sockets / ear)
        _unlink(self._sockets / (ear + _OVERFULL))

    def _sweep(self) -> None:
        """Clear away what processes left that were killed. A registration is younger than its socket, so one whose
        socket does not answer is nobody's."""
        registered = {folder: _names(self._topics / folder) for folder in _names(self._topics)}
        ears = {_ear_of(name[1:]) for names in registered.values() for name in names}
        ears.update(name.removesuffix(_OVERFULL) for name in _names(self._sockets) if not name.startswith(_UNBORN))
        dead = {ear for ear in ears if not self._answers(ear)}
        for name, names in registered.items():
            folder = self._topics / name
            for gone in [name for name in names if _ear_of(name[1:]) in dead]:
                _unlink(folder / gone)
            _remove(folder)
        for ear in dead:
            self._bury(ear)

    def _answers(self, ear: str) -> bool:
        with _new_socket() as probe:
            try:
                probe.connect(self._address(ear))
            except (ConnectionRefusedError, FileNotFoundError):
                return False
            except OSError:
                return True  # not ours to judge
        return True

    def _address(self, name: str) -> str:
        plain = str(self._sockets / name)
        if len(plain.encode()) <= _MOST_PATH:
            return plain
        return f"/proc/self/fd/{self._folder_handle}/{name}"

    def _ear(self) -> _Ear:
        """The ear of the running loop; those of loops that have ended are closed by the way."""
        loop = asyncio.get_running_loop()
        with self._ears_lock:
            for ended in [known for known in self._ears if known.is_closed()]:
                self._ears.pop(ended).close()
            if loop not in self._ears:
                name = os.urandom(6).hex()
                self._ears[loop] = _Ear(loop, self._sockets / name, self._address(_UNBORN + name))
            return self._ears[loop]


class _Ear:
    """The socket of one event loop. A store may be used from several, each in a thread of its own, and none may
    depend on another one's running."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path, address: str) -> None:
        self.name = path.name
        self.waiting: dict[str, SocketWake] = {}
        self._loop = loop
        self._path = path
        self._overfull = path.with_name(path.name + _OVERFULL)
        with contextlib.ExitStack() as undo:
            self._socket = undo.enter_context(_new_socket())
            self._socket.bind(address)
            # it gets its name when it can be heard: one that cannot is taken for dead
            path.with_name(_UNBORN + path.name).rename(path)
            loop.add_reader(self._socket, self._receive)
            undo.pop_all()

    def close(self) -> None:
        for wake in list(self.waiting.values()):
            wake.unregister()
        self.waiting.clear()
        _unlink(self._path)
        _unlink(self._overfull)
        if self._loop.is_closed() or not self._loop.is_running() or self._loop is asyncio.get_running_loop():
            self._shut()
            return
        with contextlib.suppress(RuntimeError):  # it ended just now
            self._loop.call_soon_threadsafe(self._shut)

    def _shut(self) -> None:
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        self._socket.close()

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                name = self._socket.recv(200).decode(errors="replace")
                if wake := self.waiting.get(name):
                    wake.ring()
        # the socket is shared by all subscriptions of the loop and holds few doorbells (10 by default)
        if _unlink(self._overfull):
            for wake in self.waiting.values():
                wake.ring()


class SocketWake:
    """One subscription; see the port for its contract."""

    def __init__(self, board: WakeBoard, ear: _Ear, name: str, topics: Sequence[str]) -> None:
        self._board = board
        self._ear = ear
        self._name = name
        self._topics = tuple(dict.fromkeys(topics))
        # as text: there is a file for every queue, and paths as objects cost more than the calls
        self._files = [
            (f"{folder}/{_AWAKE}{name}", f"{folder}/{_ASLEEP}{name}") for folder in map(board.folder_of, self._topics)
        ]
        self._rung = asyncio.Event()
        self._closed = False

    def register(self) -> bool:
        """Be registered everywhere, as awake; True if somebody had taken a registration."""
        if self._closed:
            return False
        taken = False
        for awake, asleep in self._files:
            if not (_rename(asleep, awake) or os.path.exists(awake)):
                _touch(awake)
                taken = True
        return taken

    def unregister(self) -> list[str]:
        """Take all registrations back, for good; the topics where somebody took one first."""
        self._closed = True
        taken = []
        for topic, files in zip(self._topics, self._files, strict=True):
            left = [_unlink(file) for file in files]
            if not any(left):
                taken.append(topic)
            _remove(os.path.dirname(files[0]))
        return taken

    def ring(self) -> None:
        """Get up if a registration was taken."""
        if not (self._closed or all(os.path.exists(asleep) or os.path.exists(awake) for awake, asleep in self._files)):
            self._rung.set()

    async def wait(self, timeout_s: float) -> bool:
        # one that is not there was taken: its doorbell may have been lost
        there = [_rename(awake, asleep) for awake, asleep in self._files]
        if not all(there):
            self.ring()
        try:
            # not wait_for: a cancellation that meets the bell would be lost in it (before Python 3.12)
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            # awake, but what was taken stays taken: it is told at the next wait, or passed on by `close`
            for awake, asleep in self._files:
                _rename(asleep, awake)
            raise
        self._rung.clear()
        # registered again before the caller reads, so that nothing is missed between its read and its next wait
        return self.register()

    async def close(self) -> None:
        self._ear.waiting.pop(self._name, None)
        if self._closed:
            return
        taken = [topic for topic in self.unregister() if topic.startswith("queue:")]
        if taken:
            folders = {self._board.folder_of(topic).name for topic in taken}
            self._board.notify(Counter(taken), folders)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _new_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


def _ear_of(name: str) -> str:
    return name.partition(".")[0]


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(folder)
    return []


def _touch(path: str) -> None:
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        except FileNotFoundError:  # the last one to leave took the folder away
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.dirname(path))
        else:
            return


def _rename(path: str, to: str) -> bool:
    try:
        os.rename(path, to)
    except FileNotFoundError:
        return False
    return True


def _unlink(path: str | Path) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _remove(folder: str | Path) -> None:
    with contextlib.suppress(OSError):  # somebody is registered there
        os.rmdir(folder)


def _folder_name(topic: str) -> str:
    """A topic may hold anything, so its digest names its folder. A job's id is safe: it can be looked for as it is."""
    if _JOB_TOPIC.fullmatch(topic):
        return _JOB + topic[4:]
    return hashlib.blake2b(topic.encode(), digest_size=10).hexdigest()
