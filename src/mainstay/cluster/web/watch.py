"""One reader of the managers for all clients of a server.

However many pages, streams and scrapes there are, the managers are asked about once a second, and every five seconds
without clients. New entries of the journal are numbered as they arrive, so that a stream can go on where it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import msgspec

from ...bundles import BundleClient
from ...control.explain import ClusterFacts
from ...errors import MainstayError
from ...stores.remote import ManagerConnection
from ...web import ClusterRow
from ..cluster_facts import cluster_facts
from ..core_view import ClusterCores
from ..journal_merge import MergedJournal
from ..status import ClusterStatus, JournalEntry
from .changes import ClusterVersions
from .metrics import rows_of

#: a client is expected to ask again within this time
_ATTENTION_S = 15.0
#: the time between reads without clients
_IDLE_S = 5.0
#: a status of this age answers a request
_FRESH_S = 2.0
#: how long a manager may take to answer
_ANSWER_S = 6.0
#: and how long with the cores: without them, the rest is still shown
_CORES_S = 2.0
#: another manager may report what happened this long ago
_LATE_MS = 20_000
#: entries that are kept for streams, for the page, and read at a time
_KEPT, SHOWN, _READ = 1000, 20, 500


class ClusterReader(Protocol):
    """Answers about a cluster: `ClusterClient` over the bus, or a manager in this process."""

    async def status(self) -> ClusterStatus: ...

    async def cores(self) -> ClusterCores: ...

    async def journal(
        self, *, from_ms: int | None = None, until_ms: int | None = None, most: int = 50
    ) -> list[JournalEntry]: ...

    async def drain(self, node: str, *, by: str) -> bool: ...


class NumberedEntry(NamedTuple):
    """An entry of the journal, with its place in the order of this server."""

    number: int
    entry: JournalEntry


class ClusterWatch:
    """The cluster as a server knows it. Used as `async with ClusterWatch(...)`."""

    def __init__(
        self,
        reader: ClusterReader,
        *,
        bundles: BundleClient | None = None,
        connection: ManagerConnection | None = None,
        every_s: float = 1.0,
        rng: random.Random | None = None,
    ) -> None:
        self.reader = reader
        self.bundles = bundles
        """the code that the managers keep"""
        self.connection = connection
        """the bus of the managers"""
        self.status: ClusterStatus | None = None
        """the last answer, without its journal"""
        self.versions = ClusterVersions()
        """what changed with which answer"""
        self.cores: ClusterCores | None = None
        """the cores at the last answer; None: the manager could not read them, or is of an earlier version"""
        self.cores_version = 0
        """grows when they differ from those before in more than their time"""
        self.error = ""
        """why the last read failed; empty: it did not"""
        self.changed = asyncio.Event()
        """set, and replaced by another event, after each read"""
        self.run_id = f"{(rng or random.Random()).getrandbits(48):012x}"
        """of this start of the server: the numbers of entries begin with it"""
        self.entries: deque[NumberedEntry] = deque(maxlen=_KEPT)
        self._every_s = every_s
        self._merged = MergedJournal()
        self._number = 0
        self._seen_ms: int | None = None
        self._answered_s: float | None = None
        self._attended_s: float | None = None
        self._watchers = 0
        self._reading = asyncio.Lock()
        self._nudged = asyncio.Event()
        self._encoded: tuple[ClusterStatus | None, bytes] = (None, b"")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="mainstay cluster watch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # for handlers ---------------------------------------------------------------------------------

    async def fresh(self) -> ClusterStatus:
        """A status of the last seconds; raises the error of the managers or the bus if there is none."""
        self.attend()
        if not self._is_fresh():
            await self._read()
        if self.status is None or self.error:
            raise MainstayError(self.error or "no manager has answered yet")
        return self.status

    def attend(self) -> None:
        """A client looks: read often for a while."""
        if not self._is_watched():
            self.nudge()
        self._attended_s = _now_s()

    def nudge(self) -> None:
        """Read now, so that the caller sees the effect of its change."""
        self._nudged.set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """While a stream is open."""
        self.attend()
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1
            self._attended_s = _now_s()

    @property
    def number(self) -> int:
        """Of the newest entry."""
        return self._number

    def newest(self, most: int = SHOWN) -> list[JournalEntry]:
        """The newest entries, oldest first."""
        return sorted((each.entry for each in self.entries), key=lambda entry: entry.at_ms)[-most:]

    def encoded(self, status: ClusterStatus) -> bytes:
        """A status as JSON, encoded once for all clients."""
        if self._encoded[0] is not status:
            self._encoded = (status, msgspec.json.encode(status))
        return self._encoded[1]

    # for the server -------------------------------------------------------------------------------

    def metrics(self) -> Iterable[ClusterRow]:
        """The last answer as metrics."""
        return rows_of(self.status, is_up=not self.error, cores=self.cores)

    async def facts(self) -> ClusterFacts | None:
        """What explains jobs."""
        try:
            status = await self.fresh()
        except MainstayError:
            return None
        return cluster_facts(status, [each.entry for each in self.entries])

    # reading --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._nudged.clear()
            await self._read()
            pause_s = self._every_s if self._is_watched() else max(_IDLE_S, self._every_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._nudged.wait()

    async def _read(self) -> None:
        asked_s = _now_s()
        async with self._reading:
            if self._answered_s is not None and self._answered_s >= asked_s:
                return  # by another caller, meanwhile
            try:
                async with asyncio.timeout(_ANSWER_S):
                    status = await self.reader.status()
                    from_ms = None if self._seen_ms is None else self._seen_ms - _LATE_MS
                    entries = await self.reader.journal(from_ms=from_ms, most=_READ)
            except (MainstayError, TimeoutError) as error:
                self.error = str(error) or "no manager answers in time"
                self.cores = None
            else:
                self.error = ""
                status = msgspec.structs.replace(status, journal=[])
                self.versions.observe(status)
                self.status = status
                self._add(entries)
                await self._read_cores()
            self._answered_s = _now_s()
        self.changed.set()
        self.changed = asyncio.Event()

    async def _read_cores(self) -> None:
        cores: ClusterCores | None = None
        with contextlib.suppress(MainstayError, TimeoutError):
            async with asyncio.timeout(_CORES_S):
                cores = await self.reader.cores()
        self.cores_version += _untimed(cores) != _untimed(self.cores)
        self.cores = cores

    def _add(self, entries: list[JournalEntry]) -> None:
        for entry in entries:
            if self._merged.add(entry):
                self._number += 1
                self.entries.append(NumberedEntry(self._number, entry))
            self._seen_ms = max(self._seen_ms or 0, entry.at_ms)

    def _is_fresh(self) -> bool:
        return self._answered_s is not None and not self.error and _now_s() - self._answered_s < _FRESH_S

    def _is_watched(self) -> bool:
        return self._watchers > 0 or (self._attended_s is not None and _now_s() - self._attended_s < _ATTENTION_S)


def _untimed(cores: ClusterCores | None) -> ClusterCores | None:
    return None if cores is None else msgspec.structs.replace(cores, at_ms=0)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


__all__ = ["SHOWN", "ClusterReader", "ClusterWatch", "NumberedEntry"]
