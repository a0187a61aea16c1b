"""Hub: one look at each store for everybody who watches it.

However many dashboards, streams and scrapes there are, a store is asked by one task, at the pace that
`WebOptions.snapshot_s` says; seldomer where a look takes longer than a tenth of that. Whoever wants to know gets what
was seen last, at once. When nobody has wanted to know for a while, the looks go on at a slow pace: `/readyz` and the
charts live on them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterator
from types import TracebackType
from typing import Any, Self

import msgspec

from ...errors import MainstayError
from ..api.masker import Masker
from ..options import WebOptions
from ..stores import ServedStore, ServedStores
from .followed_jobs import FollowedJobs
from .followed_lists import FollowedLists
from .history import History, Sample
from .snapshot import Snapshot, nothing_yet
from .snapshot_queries import FAST, SLOW, SnapshotQuery
from .store_access import PATIENCE_S, within_deadline

#: somebody who asked within this may ask again
_ATTENTION_S = 15.0
#: nobody watches: so often all the same
_IDLE_S = 5.0
#: a look takes about a tenth of the time at most
_SHARE = 10
#: jobs that somebody follows are looked at after this share of the time
_OFTEN = 0.5
#: the first pages wait so long for the first look, at most
_FIRST_S = 2.0

log = logging.getLogger("mainstay.web.live")


class LiveHub:
    """What is known of each store.

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
        self._tasks: list[asyncio.Task[None]] = []

    def snapshot(self, place_name: str) -> Snapshot:
        """What is known now. Never waits for the store."""
        watch = self._watches[place_name]
        watch.attend()
        return watch.snapshot

    def last_known(self, place_name: str) -> Snapshot:
        """The same for machines that ask now and then: it makes no look more frequent."""
        return self._watches[place_name].snapshot

    def history(self, place_name: str) -> list[Sample]:
        """The numbers of the last ten minutes, and roughly of the last day."""
        return self._watches[place_name].history.samples()

    def subscribe(self, place_name: str) -> AsyncGenerator[Snapshot, None]:
        """What is known now, and then whatever is seen next. Who is slow gets the latest, and misses those between.

        Close it (`aclosing`) when it is left early.
        """
        return self._watches[place_name].snapshots()

    def told(self, place_name: str, snapshot: Snapshot) -> bytes:
        """As JSON; made once for all who are told."""
        return self._watches[place_name].told(snapshot)

    def nudge(self, place_name: str) -> None:
        """Look now: something was done that whoever did it wants to see."""
        self._watches[place_name].nudge()

    def subscribers(self, place_name: str) -> int:
        """How many watch."""
        return self._watches[place_name].watchers

    def jobs(self, place_name: str) -> FollowedJobs:
        """The jobs that somebody follows."""
        return self._jobs[place_name]

    def lists(self, place_name: str) -> FollowedLists:
        """The lists of jobs that somebody follows."""
        return self._lists[place_name]

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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []


class StoreWatch:
    """The looks at one store."""

    def __init__(self, served: ServedStore, options: WebOptions, masker: Masker) -> None:
        self._served = served
        self._masker = masker
        self._every_s = options.snapshot_s
        self._patience_s = min(PATIENCE_S, options.ready_s)
        self._due_s: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._nudged = asyncio.Event()
        self._attended_s = 0.0
        self._told: tuple[Snapshot | None, bytes] = (None, b"")
        self.snapshot = nothing_yet(served)
        self.history = History()
        self.first = asyncio.Event()
        self.watchers = 0

    def attend(self) -> None:
        """Somebody is interested."""
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

    def told(self, snapshot: Snapshot) -> bytes:
        if self._told[0] is not snapshot:
            self._told = (snapshot, msgspec.json.encode(snapshot))
        return self._told[1]

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._nudged.clear()
            pace_s = self._every_s if self._is_watched(loop.time()) else max(_IDLE_S, self._every_s)
            for looks in (FAST, SLOW):
                await self._look(looks, pace_s)
                if not self.snapshot.up:
                    break
            self.first.set()
            # one that does not answer may be back soon; until then nothing is due but to ask again
            next_s = min(self._due_s.values(), default=0.0) if self.snapshot.up else loop.time() + pace_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_s):
                    await self._nudged.wait()

    async def _look(self, looks: tuple[SnapshotQuery, ...], pace_s: float) -> None:
        """Take those that are due, and tell what they found."""
        loop = asyncio.get_running_loop()
        found: dict[str, Any] = {}
        for look in looks:
            began_s = loop.time()
            if self._due_s.get(look.name, 0.0) > began_s:
                continue
            found |= await self._asked(look)
            if not found.get("up", self.snapshot.up):
                # the others would have to wait as long, to learn the same
                self._due_s.clear()
                break
            took_s = loop.time() - began_s
            self._due_s[look.name] = loop.time() + max(pace_s * look.every, took_s * _SHARE)
        if found:
            self._publish(found)

    async def _asked(self, look: SnapshotQuery) -> dict[str, Any]:
        """What it found, or that the store does not answer."""
        served = self._served
        try:
            found = await within_deadline(lambda: look.ask(served, self._masker), self._patience_s)
            return {**found, "up": True, "error": ""}
        except MainstayError as error:
            return {"up": False, "error": str(error)}
        except Exception:
            # a look that fails for a reason nobody foresaw must not end all others
            log.exception("a look at a store failed store=%s look=%s", served.name, look.name)
            return {"error": f"looking at its {look.name} failed; the log of the server tells more"}

    def _publish(self, found: dict[str, Any]) -> None:
        at_ms = max(self._served.store.clock.now_ms(), self.snapshot.at_ms + 1)
        self.snapshot = msgspec.structs.replace(self.snapshot, at_ms=at_ms, **found)
        if "stats_ms" in found and self.snapshot.up:
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
