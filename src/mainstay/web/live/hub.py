"""The live hub: one reader of each store for all clients.

However many dashboards, streams and scrapes there are, one task reads a store, every `WebOptions.snapshot_s`; less
often if a read takes longer than a tenth of that. Clients get the last snapshot at once. Without clients, the reads
continue at a slow pace, for `/readyz` and the charts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from types import TracebackType
from typing import Any, Self

import msgspec

from ...errors import MainstayError
from ..api.masker import Masker
from ..options import WebOptions
from ..stores import ServedStore, ServedStores
from .followed import FollowedSet
from .followed_jobs import FollowedJobs
from .followed_lists import FollowedLists
from .history import History, Sample
from .snapshot import Snapshot
from .snapshot_queries import FAST, SLOW, SnapshotQuery
from .store_access import DEADLINE_S, within_deadline

#: a client is expected to ask again within this time
_ATTENTION_S = 15.0
#: the time between reads without clients
_IDLE_S = 5.0
#: reads take about a tenth of the time at most
_SHARE = 10
#: followed jobs are read after this part of the time
_OFTEN = 0.5
#: the start waits this long for the first reads, at most
_FIRST_S = 2.0

log = logging.getLogger("mainstay.web.live")


class LiveHub:
    """The snapshots of each store.

    >>> async def main():
    ...     async with await ServedStores.open({"main": "memory:"}) as stores, LiveHub(stores, WebOptions()) as hub:
    ...         return hub.snapshot("main").up
    >>> asyncio.run(main())
    True
    """

    def __init__(self, stores: ServedStores, options: WebOptions, masker: Masker | None = None) -> None:
        stores_by_name, every_s = stores.by_name.items(), options.snapshot_s
        masker = masker or Masker(options.masked, shows=options.show_payloads)
        self._watches = {name: StoreWatch(served, options, masker) for name, served in stores_by_name}
        self._jobs = {name: FollowedJobs(served, _OFTEN * every_s, masker) for name, served in stores_by_name}
        self._lists = {name: FollowedLists(served, every_s, masker) for name, served in stores_by_name}
        self._shared: dict[tuple[str, str], FollowedSet[Any, Any]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def snapshot(self, store_name: str) -> Snapshot:
        """The last snapshot. It never waits for the store."""
        watch = self._watches[store_name]
        watch.attend()
        return watch.snapshot

    def last_known(self, store_name: str) -> Snapshot:
        """The same for scrapes: it does not make reads more frequent."""
        return self._watches[store_name].snapshot

    def history(self, store_name: str) -> list[Sample]:
        """The numbers of the last ten minutes in detail, and of the last day coarsely."""
        return self._watches[store_name].history.samples()

    def subscribe(self, store_name: str) -> AsyncGenerator[Snapshot, None]:
        """The last snapshot, then each next one. A slow client gets the latest, and misses those in between.

        Close the generator (`aclosing`) if you leave it early.
        """
        return self._watches[store_name].snapshots()

    def encoded(self, store_name: str, snapshot: Snapshot) -> bytes:
        """A snapshot as JSON, encoded once for all clients."""
        return self._watches[store_name].encoded(snapshot)

    def nudge(self, store_name: str) -> None:
        """Read now, so that the caller sees the effect of its change."""
        self._watches[store_name].nudge()

    def subscribers(self, store_name: str) -> int:
        """The number of subscribers."""
        return self._watches[store_name].watchers

    def jobs(self, store_name: str) -> FollowedJobs:
        """The followed jobs."""
        return self._jobs[store_name]

    def lists(self, store_name: str) -> FollowedLists:
        """The followed lists of jobs."""
        return self._lists[store_name]

    def shared(self, store_name: str, what: str, make: Callable[[], FollowedSet[Any, Any]]) -> FollowedSet[Any, Any]:
        """What a kind follows in a store for all its clients: made by its first one, and closed with the hub."""
        key = (store_name, what)
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(watch.run(), name=f"hub {name}") for name, watch in self._watches.items()]
        firsts = [asyncio.create_task(watch.first.wait()) for watch in self._watches.values()]
        _, late = await asyncio.wait(firsts, timeout=_FIRST_S)
        for task in late:
            task.cancel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self._watches:
            await self._jobs[name].close()
            await self._lists[name].close()
        for each in self._shared.values():
            await each.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []


class StoreWatch:
    """Reads one store."""

    def __init__(self, served: ServedStore, options: WebOptions, masker: Masker) -> None:
        self._served = served
        self._masker = masker
        self._every_s = options.snapshot_s
        self._deadline_s = min(DEADLINE_S, options.ready_s)
        self._due_s: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._nudged = asyncio.Event()
        self._attended_s = 0.0
        self._encoded: tuple[Snapshot | None, bytes] = (None, b"")
        self.snapshot = Snapshot(store=served.name)
        self.history = History()
        self.first = asyncio.Event()
        self.watchers = 0

    def attend(self) -> None:
        """A client has asked for the snapshot."""
        now_s = asyncio.get_running_loop().time()
        if not self._is_watched(now_s):
            self.nudge()
        self._attended_s = now_s

    def nudge(self) -> None:
        self._due_s.clear()
        self._nudged.set()

    async def snapshots(self) -> AsyncGenerator[Snapshot, None]:
        seen: Snapshot | None = None
        self.attend()
        with self._watching():
            while True:
                changed = self._changed
                if self.snapshot is not seen:
                    seen = self.snapshot
                    yield seen
                else:
                    await changed.wait()

    def encoded(self, snapshot: Snapshot) -> bytes:
        if self._encoded[0] is not snapshot:
            self._encoded = (snapshot, msgspec.json.encode(snapshot))
        return self._encoded[1]

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._nudged.clear()
            pace_s = self._every_s if self._is_watched(loop.time()) else max(_IDLE_S, self._every_s)
            for queries in (FAST, SLOW):
                await self._read(queries, pace_s)
                if not self.snapshot.up:
                    break
            self.first.set()
            # a store that does not answer may be back soon: ask again
            next_s = min(self._due_s.values(), default=0.0) if self.snapshot.up else loop.time() + pace_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_s):
                    await self._nudged.wait()

    async def _read(self, queries: tuple[SnapshotQuery, ...], pace_s: float) -> None:
        """Run the queries that are due, and publish their results."""
        loop = asyncio.get_running_loop()
        results: dict[str, Any] = {}
        for query in queries:
            began_s = loop.time()
            if self._due_s.get(query.name, 0.0) > began_s:
                continue
            results |= await self._result(query)
            if not results.get("up", self.snapshot.up):
                # the other queries would wait as long and fail as well
                self._due_s.clear()
                break
            took_s = loop.time() - began_s
            self._due_s[query.name] = loop.time() + max(pace_s * query.every, took_s * _SHARE)
        if results:
            self._publish(results)

    async def _result(self, query: SnapshotQuery) -> dict[str, Any]:
        """The result of a query, or that the store does not answer."""
        served = self._served
        try:
            fields = await within_deadline(lambda: query.read(served, self._masker), self._deadline_s)
            return {**fields, "up": True, "error": ""}
        except MainstayError as error:
            return {"up": False, "error": str(error)}
        except Exception:
            # an unexpected error of one query must not end the others
            log.exception("a read of a store failed store=%s query=%s", served.name, query.name)
            return {"error": f"reading the {query.name} failed; see the log of the server"}

    def _publish(self, results: dict[str, Any]) -> None:
        at_ms = max(self._served.store.clock.now_ms(), self.snapshot.at_ms + 1)
        self.snapshot = msgspec.structs.replace(self.snapshot, at_ms=at_ms, **results)
        if "stats_ms" in results and self.snapshot.up:
            self.history.add(self.snapshot)
        self._changed.set()
        self._changed = asyncio.Event()

    def _is_watched(self, now_s: float) -> bool:
        return self.watchers > 0 or (self._attended_s > 0 and now_s - self._attended_s < _ATTENTION_S)

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        self.watchers += 1
        try:
            yield
        finally:
            self.watchers -= 1
            self._attended_s = asyncio.get_running_loop().time()


__all__ = ["LiveHub", "StoreWatch"]
