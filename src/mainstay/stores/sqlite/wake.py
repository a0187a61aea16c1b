"""Waking idle processes: a datagram socket per event loop, and a registration file per topic.

A subscriber puts an empty file named after itself into the folder of each topic. A writer that commits a change takes
registrations (only one process can unlink a file) and sends a datagram to the subscribers' sockets. The missing
registration is the wake itself; the datagram only tells the subscriber to look. So a datagram that is dropped, late or
duplicated loses and invents nothing. For a queue, n new jobs take at most n registrations, those of sleeping
subscribers before those of awake ones; the first letter of the file name tells them apart. A subscriber whose
registration was taken and that leaves without looking passes the wake on.
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

from ...model import LEAD_QUEUE, PLACE_QUEUE, Job
from ..change_check import topics
from ..port import Wake
from .engine import SqliteTx

_ASLEEP, _AWAKE = "a", "b"
_OTHER = {_ASLEEP: _AWAKE, _AWAKE: _ASLEEP}
_MOST_PATH = 100  # a Unix socket's path may have 107 bytes
_OVERFULL = ".full"  # beside a socket: datagrams were dropped, so every registration has to be checked
_JOB = "job-"  # the prefix of the folder of a job's topic
_JOB_TOPIC = re.compile(r"job:[0-9a-f-]{36}")
_UNBOUND = "new-"  # the prefix of a socket file that is not bound yet


class WakeBoard:
    """All subscriptions of one open store, and the sending side."""

    def __init__(self, folder: Path) -> None:
        self._topics = folder / "topics"
        self._sockets = folder / "sockets"
        self._topics.mkdir(parents=True, exist_ok=True)
        self._sockets.mkdir(exist_ok=True)
        self._numbers = itertools.count(1)
        self._receivers: dict[asyncio.AbstractEventLoop, _Receiver] = {}
        self._receivers_lock = threading.Lock()
        self._rng = random.Random(os.urandom(8))
        with contextlib.ExitStack() as undo:
            self._folder_handle = os.open(self._sockets, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            undo.callback(os.close, self._folder_handle)
            self._sender = undo.enter_context(_new_socket())
            self._sweep()
            undo.pop_all()

    def subscribe(self, topics: Sequence[str]) -> SocketWake:
        receiver = self._receiver()
        name = f"{receiver.name}.{next(self._numbers)}"
        wake = SocketWake(self, receiver, name, topics)
        receiver.waiting[name] = wake
        wake.register()
        return wake

    def folder_of(self, topic: str) -> Path:
        return self._topics / _folder_name(topic)

    def after_commit(self, effects: Sequence[SqliteTx]) -> None:
        """Wake the subscribers that wait for the written rows."""
        # most file systems count subfolders in the links of a folder: two means none
        if self._topics.stat().st_nlink == 2:
            return
        subscribed = set(os.listdir(self._topics))
        if not subscribed:
            return
        woken: Counter[str] = Counter()
        for tx in effects:
            woken.update(tx.woken)
            for before, after, _ in tx.written:
                if after.settled_ms is None or _JOB + after.id in subscribed or _wakes_others(after):
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
            except FileNotFoundError:  # the last subscriber removed the folder
                continue
            most = len(names)
            if topic.startswith("queue:"):
                most = n
                self._rng.shuffle(names)
                names.sort(key=lambda name: name[0])
            if not self._take_and_send(folder, names, most):
                # live subscribers come back, or remove the folder; for dead ones it is removed here
                _remove(folder)

    def close(self) -> None:
        with self._receivers_lock:
            for loop in list(self._receivers):
                self._receivers.pop(loop).close()
        self._sender.close()
        os.close(self._folder_handle)

    def _take_and_send(self, folder: Path, names: list[str], n: int) -> int:
        """Wake at most n of these subscribers; returns how many."""
        woken = 0
        for name in names:
            if woken == n:
                break
            # an awake subscriber may have fallen asleep since: it looked before our commit and must not be missed
            taken = _unlink(folder / name) or _unlink(folder / (_OTHER[name[0]] + name[1:]))
            if taken and self._send(name[1:]):
                woken += 1
        return woken

    def _send(self, name: str) -> bool:
        """Send a datagram for one subscription; False if its process is gone."""
        receiver = _receiver_of(name)
        try:
            try:
                self._sender.sendto(name.encode(), self._address(receiver))
            except BlockingIOError:
                (self._sockets / (receiver + _OVERFULL)).touch()
                # again, from a socket without a backlog: either it gets through, or the receiver still has datagrams to
                # read, and checks for the file after those
                with _new_socket() as fresh, contextlib.suppress(BlockingIOError):
                    fresh.sendto(name.encode(), self._address(receiver))
        except (ConnectionRefusedError, FileNotFoundError):
            self._remove_socket(receiver)
            return False
        except OSError:
            return False
        return True

    def _remove_socket(self, receiver: str) -> None:
        _unlink(self._sockets / receiver)
        _unlink(self._sockets / (receiver + _OVERFULL))

    def _sweep(self) -> None:
        """Remove the files of killed processes. A registration is younger than its socket, so if the socket does not
        answer, the registration is stale."""
        registered = {folder: _names(self._topics / folder) for folder in _names(self._topics)}
        receivers = {_receiver_of(name[1:]) for names in registered.values() for name in names}
        receivers.update(
            name.removesuffix(_OVERFULL) for name in _names(self._sockets) if not name.startswith(_UNBOUND)
        )
        dead = {receiver for receiver in receivers if not self._answers(receiver)}
        for name, names in registered.items():
            folder = self._topics / name
            for gone in [name for name in names if _receiver_of(name[1:]) in dead]:
                _unlink(folder / gone)
            _remove(folder)
        for receiver in dead:
            self._remove_socket(receiver)

    def _answers(self, receiver: str) -> bool:
        with _new_socket() as probe:
            try:
                probe.connect(self._address(receiver))
            except (ConnectionRefusedError, FileNotFoundError):
                return False
            except OSError:
                return True  # unknown, so it is kept
        return True

    def _address(self, name: str) -> str:
        plain = str(self._sockets / name)
        if len(plain.encode()) <= _MOST_PATH:
            return plain
        return f"/proc/self/fd/{self._folder_handle}/{name}"

    def _receiver(self) -> _Receiver:
        """The receiver of the running loop. Closes the receivers of loops that have ended."""
        loop = asyncio.get_running_loop()
        with self._receivers_lock:
            for ended in [known for known in self._receivers if known.is_closed()]:
                self._receivers.pop(ended).close()
            if loop not in self._receivers:
                name = os.urandom(6).hex()
                self._receivers[loop] = _Receiver(loop, self._sockets / name, self._address(_UNBOUND + name))
            return self._receivers[loop]


class _Receiver:
    """The socket of one event loop. A store may be used from several loops in different threads, and none may depend on
    another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path, address: str) -> None:
        self.name = path.name
        self.waiting: dict[str, SocketWake] = {}
        self._loop = loop
        self._path = path
        self._overfull = path.with_name(path.name + _OVERFULL)
        with contextlib.ExitStack() as undo:
            self._socket = undo.enter_context(_new_socket())
            self._socket.bind(address)
            # it gets its name only now: a socket that does not answer is taken for dead
            path.with_name(_UNBOUND + path.name).rename(path)
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
        with contextlib.suppress(RuntimeError):  # the loop has just ended
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
        # all subscriptions of the loop share the socket, whose queue is short (10 datagrams by default)
        if _unlink(self._overfull):
            for wake in self.waiting.values():
                wake.ring()


class SocketWake(Wake):
    """One subscription; see the port for its contract."""

    def __init__(self, board: WakeBoard, receiver: _Receiver, name: str, topics: Sequence[str]) -> None:
        self._board = board
        self._receiver = receiver
        self._name = name
        self._topics = tuple(dict.fromkeys(topics))
        # as text: there is a file for every queue, and Path objects cost more than the system calls
        self._files = [
            (f"{folder}/{_AWAKE}{name}", f"{folder}/{_ASLEEP}{name}") for folder in map(board.folder_of, self._topics)
        ]
        self._rung = asyncio.Event()
        self._closed = False

    def register(self) -> bool:
        """Register for all topics, as awake; True if a registration had been taken."""
        if self._closed:
            return False
        taken = False
        for awake, asleep in self._files:
            if not (_rename(asleep, awake) or os.path.exists(awake)):
                _touch(awake)
                taken = True
        return taken

    def unregister(self) -> list[str]:
        """Remove all registrations; returns the topics whose registration had been taken."""
        self._closed = True
        taken = []
        for topic, files in zip(self._topics, self._files, strict=True):
            left = [_unlink(file) for file in files]
            if not any(left):
                taken.append(topic)
            _remove(os.path.dirname(files[0]))
        return taken

    def ring(self) -> None:
        """Wake up if a registration was taken."""
        if not (self._closed or all(os.path.exists(asleep) or os.path.exists(awake) for awake, asleep in self._files)):
            self._rung.set()

    async def wait(self, timeout_s: float) -> bool:
        # a missing registration was taken, and its datagram may have been lost
        present = [_rename(awake, asleep) for awake, asleep in self._files]
        if not all(present):
            self.ring()
        try:
            # not wait_for: before Python 3.12, it loses a cancellation that comes together with the event
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            # awake; a taken registration is noticed at the next wait, or passed on by `close`
            for awake, asleep in self._files:
                _rename(asleep, awake)
            raise
        self._rung.clear()
        # register again before the caller reads, so that nothing is missed between its read and its next wait
        return self.register()

    async def close(self) -> None:
        self._receiver.waiting.pop(self._name, None)
        if self._closed:
            return
        taken = [topic for topic in self.unregister() if topic.startswith("queue:")]
        if taken:
            folders = {self._board.folder_of(topic).name for topic in taken}
            self._board.notify(Counter(taken), folders)


def _wakes_others(settled: Job) -> bool:
    """Whether the end of a job may wake more than those that wait for it. Thousands of jobs settle for each one with a
    subscriber, so the topics of most are not even listed."""
    return settled.queue in (PLACE_QUEUE, LEAD_QUEUE) or (settled.status == "cancelled" and settled.parent is not None)


def _new_socket() -> socket.socket:
    new = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    new.setblocking(False)
    return new


def _receiver_of(name: str) -> str:
    return name.partition(".")[0]


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(folder)
    return []


def _touch(path: str) -> None:
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        except FileNotFoundError:  # the last subscriber removed the folder
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
    with contextlib.suppress(OSError):  # a subscriber is registered in it
        os.rmdir(folder)


def _folder_name(topic: str) -> str:
    """A topic may have any characters, so its digest names its folder. A job's id is safe, and is used as it is."""
    if _JOB_TOPIC.fullmatch(topic):
        return _JOB + topic[4:]
    return hashlib.blake2b(topic.encode(), digest_size=10).hexdigest()
