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

#: ticks of the loop
_HEAD = struct.Struct("<q")
#: running, job, token, started, deadline
_SLOT = struct.Struct("<q36s4xqqq")


class Running(msgspec.Struct, frozen=True):
    """A job that had begun and not ended when the recorder was read."""

    job_id: str
    token: int
    started_ms: int
    deadline_ms: int
    """when it must have ended, its grace included; 0: no limit"""


class Recorder:
    """A fixed number of slots in a memory file. The file has no name: it goes with the last process that has it open.

    >>> recorder = Recorder.create(2)
    >>> recorder.begin(1, "01a1e20f-5355-7137-b2a7-4de452e6b59d", token=1, started_ms=5, deadline_ms=9)
    >>> [entry.started_ms for entry in Recorder(os.dup(recorder.fd)).running()]
    [5]
    >>> recorder.end(1); recorder.running()
    []
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, 0)
        self.slots = (len(self._map) - _HEAD.size) // _SLOT.size

    @classmethod
    def create(cls, slots: int) -> Recorder:
        """A recorder of one's own; its `fd` is what a child process inherits."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("mainstay-recorder", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, _HEAD.size + slots * _SLOT.size)
        return cls(fd)

    def begin(self, slot: int, job_id: str, *, token: int, started_ms: int, deadline_ms: int) -> None:
        _SLOT.pack_into(self._map, _HEAD.size + slot * _SLOT.size, 1, job_id.encode(), token, started_ms, deadline_ms)

    def move_deadline(self, slot: int, deadline_ms: int) -> None:
        struct.pack_into("<q", self._map, _HEAD.size + (slot + 1) * _SLOT.size - 8, deadline_ms)

    def end(self, slot: int) -> None:
        self._map[_HEAD.size + slot * _SLOT.size] = 0

    def tick(self) -> None:
        """The engine's loop turns."""
        _HEAD.pack_into(self._map, 0, self.ticks + 1)

    @property
    def ticks(self) -> int:
        found: int = _HEAD.unpack_from(self._map, 0)[0]
        return found

    def running(self) -> list[Running]:
        found = []
        for slot in range(self.slots):
            running, job_id, token, started_ms, deadline_ms = _SLOT.unpack_from(
                self._map, _HEAD.size + slot * _SLOT.size
            )
            if running:
                found.append(Running(job_id.decode("ascii", "replace"), token, started_ms, deadline_ms))
        return found

    def close(self) -> None:
        self._map.close()
        os.close(self.fd)
