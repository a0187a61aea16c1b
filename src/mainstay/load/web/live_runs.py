"""The load tests that clients of a server follow: each is read once for all of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator

import msgspec

from ...errors import BusError, InvalidInput, MainstayError
from ...model import LEAD_QUEUE, Job
from ...stores.remote import ManagerConnection
from ...task import Sealer
from ...web import ServedStore
from ...web.api import Masker
from ...web.live import Followed, FollowedSet, LiveHub
from ..fleet.live_history import HistoryEntry, LiveHistory, smaller
from ..fleet.watched_run import WatchedRun
from ..handler import summary_of
from ..live_messages import LiveNumbers, RunWindow
from ..stats.histogram import merged, percentiles_of
from ..stats.model import WINDOW_MS, Moment, Sketch, Summary
from ..stats.summary import per
from .texts import SummaryTexts, texts_of

#: how long a run is kept up to date after its last client has left
_LINGER_S = 60.0
#: encoded windows that are kept for other clients
_ENCODED = 16
#: characters of an event that a client accepts
_MOST = 900_000
#: pause before a store or a bus that does not answer is tried again
_AGAIN_S = 1.0


class LiveRun(Followed):
    """One load test that is followed."""

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.id = job_id
        self.watched: WatchedRun | None = None
        """what its leader publishes; None: it runs on one machine, or the server is not one of its cluster"""
        self.summary = b""
        """without a leader: the numbers that are saved with the job, as JSON with masked texts"""
        self.version = 0
        """of the job that these are from"""
        self.texts: SummaryTexts | None = None
        """None: not read yet"""
        self._encoded: OrderedDict[tuple[int, int, int, bool], bytes] = OrderedDict()

    @property
    def history(self) -> LiveHistory | None:
        return None if self.watched is None else self.watched.history

    def encoded(self, epoch: int, entry: HistoryEntry, *, detail: bool) -> bytes:
        """A window as JSON, encoded once for all clients that get it."""
        key = (epoch, entry.begin, entry.end, detail)
        if key not in self._encoded:
            assert self.texts is not None
            self._encoded[key] = window_json(entry, self.texts, detail=detail)
            if len(self._encoded) > _ENCODED:
                self._encoded.popitem(last=False)
        return self._encoded[key]


class LiveRuns(FollowedSet[str, LiveRun]):
    """The load tests that are followed in one store. `connection`: the bus of the cluster whose store it is."""

    def __init__(self, served: ServedStore, hub: LiveHub, masker: Masker, connection: ManagerConnection | None) -> None:
        super().__init__(linger_s=_LINGER_S)
        self._served = served
        self._hub = hub
        self._masker = masker
        self._connection = connection

    @contextlib.asynccontextmanager
    async def follow(self, job_id: str) -> AsyncIterator[LiveRun]:
        """Follow a run while the context is open."""
        async with self._following(job_id, lambda: LiveRun(job_id), self._listening) as run:
            yield run

    def _listening(self, run: LiveRun) -> asyncio.Task[None]:
        return asyncio.create_task(self._listen(run), name=f"listener of run {run.id}")

    async def _listen(self, run: LiveRun) -> None:
        while True:
            try:
                (job,) = await self._served.store.get([run.id])
                if job is None:
                    return
                run.texts = run.texts or await texts_of(self._served.store, job, self._masker)
                run.error = ""
                if self._connection is not None and job.queue == LEAD_QUEUE:
                    await self._watch(run, self._connection)
                else:
                    await self._read(run)
                return
            except MainstayError as error:
                run.fail(str(error))
            await asyncio.sleep(_AGAIN_S)

    async def _watch(self, run: LiveRun, connection: ManagerConnection) -> None:
        async with WatchedRun(connection, run.id) as watched:
            run.watched = watched
            try:
                while watched.is_open:
                    changed = watched.changed
                    run.notify()
                    await changed.wait()
            finally:
                run.watched = None
        raise BusError("the bus of the cluster was closed")

    async def _read(self, run: LiveRun) -> None:
        """Read what is saved with the job: it is saved every two seconds."""
        async with self._hub.jobs(self._served.name).follow(run.id) as followed:
            while True:
                changed = followed.changed
                (job,) = await self._served.store.get([run.id])
                if job is None:
                    return
                assert run.texts is not None
                summary = _summary(job)
                if summary is not None:
                    # its curves are long, and change little
                    short = msgspec.structs.replace(summary, points=[], distribution=[], response_distribution=[])
                    run.summary = msgspec.json.encode(run.texts.shown(short))
                run.version = job.version
                run.notify()
                # also after its end: it may be retried
                await changed.wait()


def live_runs(served: ServedStore, hub: LiveHub, masker: Masker, connection: ManagerConnection | None) -> LiveRuns:
    """Those of a server."""
    runs = hub.shared(served.name, "load", lambda: LiveRuns(served, hub, masker, connection))
    assert isinstance(runs, LiveRuns)
    return runs


def _summary(job: Job) -> Summary | None:
    try:
        return summary_of(job, Sealer(None))
    except (msgspec.MsgspecError, InvalidInput):
        return None  # written by another version, or encoded by a codec


def window_json(entry: HistoryEntry, texts: SummaryTexts, *, detail: bool) -> bytes:
    """A window without an id, as JSON."""
    moment = entry.moment
    shown = RunWindow(windows=entry.end - entry.begin, numbers=numbers_of(moment))
    if not detail:
        return msgspec.json.encode(shown)
    shown.moment = texts.moment(moment)
    data = msgspec.json.encode(shown)
    if len(data) > _MOST:
        shown.moment = texts.moment(smaller(entry).moment)
        data = msgspec.json.encode(shown)
    return data


def numbers_of(moment: Moment) -> LiveNumbers:
    """The usual numbers of a window.

    >>> from mainstay.load.stats.model import Trust, Window
    >>> numbers_of(Moment(window=Window(bucket=7, users=3), elapsed_s=0.5, phase="running", trust=Trust())).users
    3
    """
    window = moment.window
    failed = sum(step.failed.count for step in window.steps if step.failed is not None)
    requests = failed + sum(step.ok.count for step in window.steps if step.ok is not None)
    errors = sum(sum(step.errors.values()) for step in window.steps)
    times: list[Sketch | None] = [step.response for step in window.steps]
    if not any(times):
        times = [each for step in window.steps for each in (step.ok, step.failed)]
    p50, p95, p99 = percentiles_of(merged(times), (0.5, 0.95, 0.99))
    width_s = window.width * WINDOW_MS / 1000
    return LiveNumbers(
        elapsed_s=moment.elapsed_s,
        width_s=width_s,
        users=window.users,
        requests=requests,
        failed=failed,
        raised=max(0, errors - failed),
        dropped=window.dropped,
        rate=per(requests, width_s),
        p50=p50,
        p95=p95,
        p99=p99,
    )


__all__ = ["LiveRun", "LiveRuns", "live_runs", "numbers_of", "window_json"]
