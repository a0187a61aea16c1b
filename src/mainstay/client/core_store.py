"""Requests about queues, schedules, stores, batches and nodes, as flows."""

from __future__ import annotations

from typing import Any

import msgspec

from ..batch import Validation
from ..batch.report import BatchReport, HeatMap
from ..batch.web import BatchStatusView, OutputPage, ResumeResult
from ..control import SessionView, StatsView
from ..control.overview import LimitOverview, QueueOverview, QueuesOverview
from ..model import QueueSettings
from ..node import NodeJobOverview, NodeList, NodeRetryResult
from ..web.api import (
    BulkResult,
    DrainedSessions,
    LimitList,
    QuickCheckResult,
    ScheduleInfo,
    ScheduleList,
    ScheduleRun,
    StoreInfo,
    StoreList,
    WorkerList,
    WorkingSession,
)
from ..web.live import Sample, Snapshot
from .calls import delete, get, named, post
from .core import Core, job_path, tag
from .exchange import Flow


class _Samples(msgspec.Struct, frozen=True, kw_only=True):
    samples: list[Sample]


class QueueCore:
    """Queues, and the limits of concurrency keys."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def all(self) -> Flow[QueuesOverview]:
        return self._core.ask(get("/queues", QueuesOverview, self._core.query()))

    def one(self, name: str) -> Flow[QueueOverview]:
        return self._core.ask(get(f"/queues/{named(name)}", QueueOverview, self._core.query()))

    def pause(self, name: str, reason: str | None) -> Flow[QueueSettings]:
        return self._post(name, "pause", QueueSettings, {"reason": reason}, safe=True)

    def resume(self, name: str) -> Flow[QueueSettings]:
        return self._post(name, "resume", QueueSettings, {}, safe=True)

    def purge(
        self, name: str, *, delete_them: bool, dry_run: bool, limit: int | None, reason: str | None
    ) -> Flow[BulkResult]:
        body = {"delete": delete_them, "dry_run": dry_run, "limit": limit, "reason": reason}
        return self._post(name, "purge", BulkResult, body, safe=dry_run)

    def limits(self) -> Flow[list[LimitOverview]]:
        response = yield from self._core.ask(get("/limits", LimitList, self._core.query()))
        return response.limits

    def set_limit(self, key: str, most: int | None) -> Flow[None]:
        # null removes the limit, so it must be sent
        body = {"key": key, "limit": msgspec.Raw(b"null") if most is None else most}
        yield from self._core.ask(post("/limits", dict[str, Any], body, safe=True, query=self._core.query()))

    def _post(self, name: str, what: str, into: Any, body: dict[str, Any], *, safe: bool) -> Flow[Any]:
        return self._core.ask(post(f"/queues/{named(name)}/{what}", into, body, safe=safe, query=self._core.query()))


class ScheduleCore:
    """Schedules."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def all(self) -> Flow[list[ScheduleInfo]]:
        response = yield from self._core.ask(get("/schedules", ScheduleList, self._core.query()))
        return response.schedules

    def one(self, name: str) -> Flow[ScheduleInfo]:
        return self._core.ask(get(f"/schedules/{named(name)}", ScheduleInfo, self._core.query()))

    def pause(self, name: str) -> Flow[ScheduleInfo]:
        return self._post(name, "pause", ScheduleInfo, safe=True)

    def resume(self, name: str) -> Flow[ScheduleInfo]:
        return self._post(name, "resume", ScheduleInfo, safe=True)

    def run(self, name: str) -> Flow[ScheduleRun]:
        return self._post(name, "run", ScheduleRun, safe=False)

    def drop(self, name: str) -> Flow[None]:
        path = f"/schedules/{named(name)}"
        yield from self._core.ask(delete(path, dict[str, Any], self._core.query()))

    def _post(self, name: str, what: str, into: Any, *, safe: bool) -> Flow[Any]:
        return self._core.ask(post(f"/schedules/{named(name)}/{what}", into, safe=safe, query=self._core.query()))


class StoreCore:
    """The stores of the server, and the state of one store."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def stores(self) -> Flow[list[StoreInfo]]:
        response = yield from self._core.ask(get("/stores", StoreList))
        return response.stores

    def workers(self) -> Flow[list[WorkingSession]]:
        response = yield from self._core.ask(get("/workers", WorkerList, self._core.query()))
        return response.sessions

    def drain(self, worker: str) -> Flow[list[SessionView]]:
        # idempotent: the first request counts
        path = f"/workers/{named(worker)}/drain"
        response = yield from self._core.ask(post(path, DrainedSessions, safe=True, query=self._core.query()))
        return response.sessions

    def stats(self) -> Flow[StatsView]:
        return self._core.ask(get("/stats", StatsView, self._core.query()))

    def snapshot(self) -> Flow[Snapshot]:
        return self._core.ask(get("/snapshot", Snapshot, self._core.query()))

    def history(self) -> Flow[list[Sample]]:
        response = yield from self._core.ask(get("/history", _Samples, self._core.query()))
        return response.samples

    def check(self) -> Flow[QuickCheckResult]:
        return self._core.ask(post("/check", QuickCheckResult, safe=True, query=self._core.query()))


class BatchCore:
    """Batches."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def status(self, job_id: str) -> Flow[BatchStatusView]:
        return self._core.ask(get(job_path(job_id, "batch"), BatchStatusView, self._core.query()))

    def report(self, job_id: str) -> Flow[BatchReport]:
        return self._core.ask(get(job_path(job_id, "report"), BatchReport, self._core.query()))

    def map(self, job_id: str) -> Flow[HeatMap]:
        return self._core.ask(get(job_path(job_id, "map"), HeatMap, self._core.query()))

    def outputs(self, job_id: str, *, start: int, limit: int, state: Any) -> Flow[OutputPage]:
        query = self._core.query(start=start, limit=limit, state=[state] if isinstance(state, str) else state)
        return self._core.ask(get(job_path(job_id, "outputs"), OutputPage, query))

    def validate(self, job_id: str, *, force: bool, version: int | None) -> Flow[Validation]:
        # a repeated validation does no harm
        path, safe = job_path(job_id, "validate"), version is None
        query = self._core.query()
        return self._core.ask(post(path, Validation, {"force": force}, safe=safe, query=query, If_Match=tag(version)))

    def resume(self, job_id: str, *, dry_run: bool, reason: str | None, version: int | None) -> Flow[ResumeResult]:
        body = {"dry_run": dry_run, "reason": reason}
        path, query = job_path(job_id, "resume"), self._core.query()
        return self._core.ask(post(path, ResumeResult, body, safe=dry_run, query=query, If_Match=tag(version)))


class NodeCore:
    """Nodes and node jobs."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def all(self) -> Flow[NodeList]:
        return self._core.ask(get("/nodes", NodeList, self._core.query()))

    def job(self, job_id: str) -> Flow[NodeJobOverview]:
        return self._core.ask(get(job_path(job_id, "nodes"), NodeJobOverview, self._core.query()))

    def retry(self, job_id: str, node: str, *, reason: str | None) -> Flow[NodeRetryResult]:
        path = job_path(job_id, f"nodes/{named(node)}/retry")
        return self._core.ask(post(path, NodeRetryResult, {"reason": reason}, safe=False, query=self._core.query()))


__all__ = ["BatchCore", "NodeCore", "QueueCore", "ScheduleCore", "StoreCore"]
