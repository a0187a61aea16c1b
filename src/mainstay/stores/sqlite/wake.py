"""Waking idle processes: a datagram socket per event loop, and a registration file per topic.

A subscriber puts an empty file named after itself into the folder of each topic. Whoever commits a change looks
into that folder and sends a byte. For a queue, it takes the registration away first (unlinking a file succeeds
for exactly one), so that n new jobs wake at most n workers and no worker twice. A worker that was woken and
goes away without looking passes the wake on. Those who sleep are taken before those who are awake and would
look only later; the first letter of the file's name tells them apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import random
import socket
import threading
from collections import Counter
from collections.abc import Container, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ..judge import topics
from .engine import Tx

_ASLEEP, _AWAKE = "a", "b"
_MOST_PATH = 100  # a Unix socket's path may have 107 bytes


class WakeBoard:
    """All subscriptions of one open store, and the sending side."""

    def __init__(self, folder: Path) -> None:
        self._topics = folder / "topics"
        self._sockets = folder / "sockets"
        self._topics.mkdir(parents=True, exist_ok=True)
        self._sockets.mkdir(exist_ok=True)
        self._folder_handle = os.open(self._sockets, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._numbers = itertools.count(1)
        self._ears: dict[asyncio.AbstractEventLoop, _Ear] = {}
        self._ears_lock = threading.Lock()
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.setblocking(False)
        self._rng = random.Random(os.urandom(8))

    def subscribe(self, topics: Sequence[str]) -> SocketWake:
        ear = self._ear()
        name = f"{ear.name}.{next(self._numbers)}"
        wake = SocketWake(self, ear, name, topics)
        ear.waiting[name] = wake
        wake.register()
        return wake

    def folder_of(self, topic: str) -> Path:
        # a topic may hold anything; its digest is a safe file name
        return self._topics / hashlib.blake2b(topic.encode(), digest_size=10).hexdigest()

    def after_commit(self, effects: Sequence[Tx]) -> None:
        """Wake whoever waits for what was written. Who is woken is worked out only if anybody waits at all."""
        subscribed = set(os.listdir(self._topics))
        if not subscribed:
            return
        woken: Counter[str] = Counter()
        for tx in effects:
            woken.update(tx.woken)
            for before, after in tx.touched:
                woken.update(topics(before, after))
        self.notify(woken, subscribed)

    def notify(self, woken: Counter[str], subscribed: Container[str]) -> None:
        for topic, n in woken.items():
            folder = self.folder_of(topic)
            if folder.name not in subscribed:
                continue
            try:
                names = os.listdir(folder)
            except FileNotFoundError:  # the last one to leave took the folder away
                continue
            if topic.startswith("queue:"):
                self._rng.shuffle(names)
                names.sort(key=lambda name: name[0])
                self._take_and_send(folder, names, n)
            else:
                for name in names:
                    if not self._send(name):
                        _unlink(folder / name)

    def close(self) -> None:
        with self._ears_lock:
            for loop in list(self._ears):
                self._ears.pop(loop).close()
        self._sender.close()
        os.close(self._folder_handle)

    def _take_and_send(self, folder: Path, names: list[str], n: int) -> None:
        for name in names:
            if n <= 0:
                return
            # one that we saw awake may have fallen asleep since: it looked before our commit and must not be missed
            if (_unlink(folder / name) or _unlink(folder / (_ASLEEP + name[1:]))) and self._send(name):
                n -= 1

    def _send(self, name: str) -> bool:
        process, _, _ = name[1:].partition(".")
        try:
            self._sender.sendto(name[1:].encode(), self._address(process))
        except (BlockingIOError, OSError) as error:
            if isinstance(error, BlockingIOError):
                return True  # its buffer is full of wakes it has not read: it is awake
            _unlink(self._sockets / process)
            return False
        return True

    def _address(self, process: str) -> str:
        plain = str(self._sockets / process)
        if len(plain.encode()) <= _MOST_PATH:
            return plain
        return f"/proc/self/fd/{self._folder_handle}/{process}"

    def _ear(self) -> _Ear:
        """The ear of the running loop; those of loops that have ended are closed by the way."""
        loop = asyncio.get_running_loop()
        with self._ears_lock:
            for ended in [known for known in self._ears if known.is_closed()]:
                self._ears.pop(ended).close()
            if loop not in self._ears:
                name = os.urandom(6).hex()
                self._ears[loop] = _Ear(loop, name, self._sockets / name, self._address(name))
            return self._ears[loop]


class _Ear:
    """The socket of one event loop. A store may be used from several, each in a thread of its own, and none may
    depend on another one's running."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, path: Path, address: str) -> None:
        self.name = name
        self.waiting: dict[str, SocketWake] = {}
        self._loop = loop
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(address)
        loop.add_reader(self._socket, self._receive)

    def close(self) -> None:
        for wake in list(self.waiting.values()):
            wake.unregister()
        self.waiting.clear()
        _unlink(self._path)
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


class SocketWake:
    """One subscription; see the port for its contract."""

    def __init__(self, board: WakeBoard, ear: _Ear, name: str, topics: Sequence[str]) -> None:
        self._board = board
        self._ear = ear
        self._name = name
        self._topics = tuple(topics)
        self._rung = asyncio.Event()

    def register(self) -> None:
        for topic in self._topics:
            _touch(self._board.folder_of(topic) / (_AWAKE + self._name))

    def unregister(self) -> list[str]:
        """Take all registrations back; the topics where somebody took one first."""
        taken = []
        for topic in self._topics:
            folder = self._board.folder_of(topic)
            if not (_unlink(folder / (_AWAKE + self._name)) or _unlink(folder / (_ASLEEP + self._name))):
                taken.append(topic)
            with contextlib.suppress(OSError):  # others are registered there still
                folder.rmdir()
        return taken

    def _fall_asleep(self) -> None:
        for topic in self._topics:
            folder = self._board.folder_of(topic)
            with contextlib.suppress(FileNotFoundError):  # taken already: the wake is on its way
                (folder / (_AWAKE + self._name)).rename(folder / (_ASLEEP + self._name))

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, timeout_s: float) -> bool:
        self._fall_asleep()
        try:
            await asyncio.wait_for(self._rung.wait(), timeout_s)
        except TimeoutError:
            return False
        self._rung.clear()
        # registered again before the caller reads, so that nothing is missed between its read and its next wait
        self.register()
        return True

    async def close(self) -> None:
        self._ear.waiting.pop(self._name, None)
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


def _touch(path: Path) -> None:
    while True:
        try:
            path.touch()
        except FileNotFoundError:  # the last one to leave took the folder away
            path.parent.mkdir(exist_ok=True)
        else:
            return


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
