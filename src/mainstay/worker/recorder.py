"""The flight recorder: the jobs that an engine runs right now, in memory shared with its supervisor.

To store that a job starts costs a commit; to write it here costs a microsecond. The supervisor reads it with every
heartbeat and stores the start marks. When an engine dies, it reads it once more and knows which jobs ran. When an
engine no longer reacts and a job is over its deadline, it knows which one. Only the engine writes. A slot that is read
during a write may be torn: every write that follows is fenced by the token, so the worst result is a refusal.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

import msgspec

#: ticks of the loop, and how many slots were ever used
_HEAD = struct.Struct("<qq")
_TICKS = struct.Struct("<q")
#: running, job, token, started, deadline
_SLOT = struct.Struct("<q36s4xqqq")
_BODY = struct.Struct("<36s4xqqq")
_DEADLINE = struct.Struct("<q")

#: the mark of a slot whose job runs; 0 when it is free
_HERE, _APART = 1, 2

#: enough for any concurrency; only used slots take memory
SLOTS = 65_536


def unnamed_file(label: str) -> int:
    """A file in memory for processes that inherit it, where the system has such files; else in the temporary folder."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(label, os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Running(msgspec.Struct, frozen=True):
    """A job that had begun and not ended when the recorder was read."""

    job_id: str
    token: int
    started_ms: int
    """0: it stores its start itself"""
    deadline_ms: int
    """when it must have ended, its grace included, in lease time; 0: no limit"""
    apart: bool = False
    """its code runs in other processes: if the engine dies, this job is not to blame"""


class Recorder:
    """A fixed number of slots in a memory file without a name, which ends with the last process that has it open.

    >>> recorder = Recorder.create(2)
    >>> recorder.begin(1, "01a1e20f-5355-7137-b2a7-4de452e6b59d", token=1, started_ms=5, deadline_ms=9)
    >>> copy = Recorder(os.dup(recorder.fd))
    >>> [entry.started_ms for entry in copy.running()]
    [5]
    >>> recorder.end(1); copy.running()
    []
    >>> recorder.close(); copy.close()
    """

    def __init__(self, fd: int, memory: mmap.mmap | None = None) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, 0) if memory is None else memory
        self.slots = (len(self._map) - _HEAD.size) // _SLOT.size
        self._used: int = _HEAD.unpack_from(self._map, 0)[1]

    @classmethod
    def create(cls, slots: int = SLOTS) -> Recorder:
        """A new recorder; a child process inherits its `fd`."""
        fd = unnamed_file("mainstay-recorder")
        os.ftruncate(fd, _HEAD.size + slots * _SLOT.size)
        return cls(fd)

    @classmethod
    def within_process(cls, slots: int) -> Recorder:
        """A recorder for an engine that runs in the process of its reader. It has no `fd`."""
        return cls(-1, mmap.mmap(-1, _HEAD.size + slots * _SLOT.size))

    def begin(
        self, slot: int, job_id: str, *, token: int, started_ms: int, deadline_ms: int, apart: bool = False
    ) -> None:
        """A job begins. Use low slots first: reading stops at the highest that was ever used."""
        at = self._at(slot)
        _BODY.pack_into(self._map, at + 8, job_id.encode(), token, started_ms, deadline_ms)
        # the mark comes last: if the process is killed before it, the job has not begun
        self._map[at] = _APART if apart else _HERE
        if slot >= self._used:
            self._used = slot + 1
            _TICKS.pack_into(self._map, _TICKS.size, self._used)

    def move_deadline(self, slot: int, deadline_ms: int) -> None:
        """The deadline of a job has changed; 0: no limit."""
        _DEADLINE.pack_into(self._map, self._at(slot) + _SLOT.size - _DEADLINE.size, deadline_ms)

    def end(self, slot: int) -> None:
        """The job has ended."""
        self._map[self._at(slot)] = 0

    def tick(self) -> None:
        """The engine's loop turns."""
        _TICKS.pack_into(self._map, 0, self.ticks + 1)

    @property
    def ticks(self) -> int:
        """The number of ticks so far."""
        ticks: int = _TICKS.unpack_from(self._map, 0)[0]
        return ticks

    def running(self) -> list[Running]:
        """The jobs that run now, by slot."""
        used = min(_HEAD.unpack_from(self._map, 0)[1], self.slots)
        entries = []
        for running, job_id, token, started_ms, deadline_ms in _SLOT.iter_unpack(
            self._map[_HEAD.size : _HEAD.size + used * _SLOT.size]
        ):
            if running:
                apart = running == _APART
                entries.append(Running(job_id.decode("ascii", "replace"), token, started_ms, deadline_ms, apart))
        return entries

    def close(self) -> None:
        """Release the memory."""
        self._map.close()
        if self.fd >= 0:
            os.close(self.fd)

    def _at(self, slot: int) -> int:
        if not 0 <= slot < self.slots:
            raise IndexError(f"slot {slot} is out of range: the recorder has {self.slots} slots")
        return _HEAD.size + slot * _SLOT.size
