"""The flight recorder: which jobs an engine is running right now, in memory shared with its supervisor.

Writing to the store that a job starts costs a commit; writing it here costs a microsecond. The supervisor reads it
with every beat and sends the start marks on; when an engine dies it reads it once more and knows whom to blame; and
when a job outlives its deadline in an engine that no longer reacts, it knows which one, and that the others are
innocent. Only the engine writes. A slot read while it is written may be torn: what is done with it is fenced by the
token, so the worst that comes of it is a refusal.
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

#: enough for any concurrency; memory is taken only for the slots that are used
SLOTS = 65_536


class Running(msgspec.Struct, frozen=True):
    """A job that had begun and not ended when the recorder was read."""

    job_id: str
    token: int
    started_ms: int
    deadline_ms: int
    """when it must have ended, its grace included, in lease time; 0: no limit"""
    apart: bool = False
    """it runs in a process of its own: if the engine dies, it was not this one's doing"""


class Recorder:
    """A fixed number of slots in a memory file. The file has no name: it goes with the last process that has it open.

    >>> recorder = Recorder.create(2)
    >>> recorder.begin(1, "01a1e20f-5355-7137-b2a7-4de452e6b59d", token=1, started_ms=5, deadline_ms=9)
    >>> seen = Recorder(os.dup(recorder.fd))
    >>> [entry.started_ms for entry in seen.running()]
    [5]
    >>> recorder.end(1); seen.running()
    []
    >>> recorder.close(); seen.close()
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, 0)
        self.slots = (len(self._map) - _HEAD.size) // _SLOT.size
        self._used: int = _HEAD.unpack_from(self._map, 0)[1]

    @classmethod
    def create(cls, slots: int = SLOTS) -> Recorder:
        """A recorder of one's own; its `fd` is what a child process inherits."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("mainstay-recorder", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, _HEAD.size + slots * _SLOT.size)
        return cls(fd)

    def begin(
        self, slot: int, job_id: str, *, token: int, started_ms: int, deadline_ms: int, apart: bool = False
    ) -> None:
        """A job begins. Slots are taken from the lowest free one up: reading stops at the highest ever used."""
        at = self._at(slot)
        _BODY.pack_into(self._map, at + 8, job_id.encode(), token, started_ms, deadline_ms)
        # the mark comes last: killed in between, the job has not begun
        self._map[at] = _APART if apart else _HERE
        if slot >= self._used:
            self._used = slot + 1
            _TICKS.pack_into(self._map, _TICKS.size, self._used)

    def move_deadline(self, slot: int, deadline_ms: int) -> None:
        """It was given more time, or less; 0: no limit."""
        _DEADLINE.pack_into(self._map, self._at(slot) + _SLOT.size - _DEADLINE.size, deadline_ms)

    def end(self, slot: int) -> None:
        """It ended, however it ended."""
        self._map[self._at(slot)] = 0

    def tick(self) -> None:
        """The engine's loop turns."""
        _TICKS.pack_into(self._map, 0, self.ticks + 1)

    @property
    def ticks(self) -> int:
        """How often the engine's loop has said that it turns."""
        found: int = _TICKS.unpack_from(self._map, 0)[0]
        return found

    def running(self) -> list[Running]:
        """What runs now, by slot."""
        used = min(_HEAD.unpack_from(self._map, 0)[1], self.slots)
        found = []
        for running, job_id, token, started_ms, deadline_ms in _SLOT.iter_unpack(
            self._map[_HEAD.size : _HEAD.size + used * _SLOT.size]
        ):
            if running:
                apart = running == _APART
                found.append(Running(job_id.decode("ascii", "replace"), token, started_ms, deadline_ms, apart))
        return found

    def close(self) -> None:
        """Let go of the memory."""
        self._map.close()
        os.close(self.fd)

    def _at(self, slot: int) -> int:
        if not 0 <= slot < self.slots:
            raise IndexError(f"the recorder has {self.slots} slots, and {slot} is none of them")
        return _HEAD.size + slot * _SLOT.size
