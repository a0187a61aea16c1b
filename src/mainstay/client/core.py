"""Requests about jobs, as flows. Both clients are thin layers over this."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict, TypeVar

import msgspec

from ..clock import duration_text, seconds
from ..control import JobRoutes, JobView, move_index, note_stored
from ..control.explain import Explanation
from ..errors import InvalidInput, MainstayError, RequestRefused, WaitTimeout
from ..model import ErrorInfo, check_id
from ..task import job_failure
from ..web.api import (
    AwaitedJobs,
    BulkResult,
    EventPage,
    JobDeleted,
    JobPage,
    Story,
    SubmitGroupResponse,
    SubmitManyResponse,
    SubmitResponse,
    UnitPage,
)
from . import calls
from .calls import ApiAnswer, ApiCall, duration, get, packed, packed_all, post
from .exchange import Flow, RetryPause, Tries, carried
from .refusals import error_of
from .submit_request import SubmitRequest, checked, chunked

T = TypeVar("T")
Duration = str | timedelta
Action = Literal["retry", "cancel", "delete"]
#: called with the number of jobs stored so far
Progress = Callable[[int], object]

#: the longest that a server waits in one request
_WAIT_S = 30.0
_PENDING = 409


class JobFilters(TypedDict, total=False):
    """A filter for jobs. A field that is left out, or None, does not filter."""

    status: str | Sequence[str] | None
    kind: str | None
    queue: str | None
    name: str | None
    tag: str | None
    key: str | None
    text: str | None
    group: str | None
    parent: str | None
    session: str | None
    older_than: Duration | None
    newer_than: Duration | None
    created_from_ms: int | None
    created_before_ms: int | None


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a settled job."""

    id: str
    status: str
    reason: str | None
    result: Any
    error: ErrorInfo | None
    shown: str = "whole"


class Core:
    """The part of a client that does no I/O."""

    def __init__(
        self,
        *,
        store: str | None,
        tries: Tries,
        rng: random.Random,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = {"store": store}
        self._tries = tries
        self._rng = rng
        self._now = now

    @property
    def now(self) -> Callable[[], float]:
        """The time in seconds, of no particular day."""
        return self._now

    def ask(self, call: ApiCall[T]) -> Flow[T]:
        """Send a call, with retries."""
        return carried(call, self._tries, self._rng)

    def pause(self, losses: int, asked_s: float | None = None) -> float | None:
        """The pause before a stream is opened again, after this many losses in a row; None: give up."""
        return None if losses >= self._tries.most else self._tries.pause(losses, asked_s, self._rng)

    def query(self, **more: Any) -> dict[str, Any]:
        """The query of a request, with the store."""
        return {**more, **self._store}

    def key(self) -> str:
        """A random key for one submit and its retries."""
        return f"{self._rng.getrandbits(128):032x}"

    # submit -----------------------------------------------------------------------------------------

    def submit(self, job: SubmitRequest) -> Flow[SubmitResponse]:
        key = None if "key" in job.data else self.key()
        body = packed(job.data)
        return self.ask(post("/jobs", SubmitResponse, safe=True, query=self.query(), packed=body, Idempotency_Key=key))

    def submit_many(
        self, jobs: Iterable[SubmitRequest], *, chunk: int, progress: Progress | None
    ) -> Flow[list[SubmitResponse]]:
        """Submit in chunks. An error names the job by its position among all, and the number of stored jobs."""
        made: list[SubmitResponse] = []
        try:
            for portion in chunked(jobs, most=chunk, key=self.key):
                made += yield from self._submit_chunk(portion, before=len(made))
                if progress is not None:
                    progress(len(made))
        except MainstayError as error:
            note_stored(error, len(made))
            raise
        return made

    def _submit_chunk(self, jobs: list[msgspec.Raw], *, before: int) -> Flow[list[SubmitResponse]]:
        body = packed_all({"jobs": jobs})
        try:
            made = yield from self.ask(
                post("/jobs/bulk", SubmitManyResponse, safe=True, query=self.query(), packed=body)
            )
        except MainstayError as error:
            # the index of the server is within this chunk
            move_index(error, before)
            raise
        return list(made.jobs)

    def submit_group(
        self, members: Iterable[SubmitRequest], then: SubmitRequest, *, when: str, failed: str
    ) -> Flow[SubmitGroupResponse]:
        key = None if "key" in checked(then, "then").data else self.key()
        jobs = [msgspec.Raw(packed(checked(member, "members").data)) for member in members]
        last = msgspec.Raw(packed(then.data))
        body = packed_all({"members": jobs, "then": last, "when": when, "failed": failed})
        return self.ask(
            post("/groups", SubmitGroupResponse, safe=True, query=self.query(), packed=body, Idempotency_Key=key)
        )

    # look -------------------------------------------------------------------------------------------

    def job(self, job_id: str, *, payload: bool) -> Flow[JobView]:
        return self.ask(get(self._of(job_id), JobView, self.query(payload=payload)))

    def page(self, filters: JobFilters, *, cursor: str | None, limit: int, **more: bool) -> Flow[JobPage]:
        return self.ask(get("/jobs", JobPage, self.query(**self.listed(filters), **more, cursor=cursor, limit=limit)))

    def trail(self, job_id: str, *, after: int, limit: int) -> Flow[EventPage]:
        return self.ask(get(self._of(job_id, "events"), EventPage, self.query(after=after, limit=limit)))

    def story(self, job_id: str) -> Flow[Story]:
        return self.ask(get(self._of(job_id, "story"), Story, self.query()))

    def explain(self, job_id: str) -> Flow[Explanation]:
        return self.ask(get(self._of(job_id, "explain"), Explanation, self.query()))

    def routes(self, job_id: str) -> Flow[JobRoutes]:
        return self.ask(get(self._of(job_id, "routes"), JobRoutes, self.query()))

    def awaited(self, job_id: str) -> Flow[list[str]]:
        awaited = yield from self.ask(get(self._of(job_id, "awaited"), AwaitedJobs, self.query()))
        return awaited.ids

    def units(self, job_id: str, *, status: Any, cursor: str | None, limit: int, payload: bool) -> Flow[UnitPage]:
        query = self.query(status=_many(status), cursor=cursor, limit=limit, payload=payload)
        return self.ask(get(self._of(job_id, "units"), UnitPage, query))

    # wait -------------------------------------------------------------------------------------------

    def settled(self, job_id: str, timeout: Duration | None) -> Flow[Settled]:
        """Wait for the result; raises `WaitTimeout`."""
        left_s = timeout_s = None if timeout is None else seconds(timeout, field="timeout")
        until_s = None if timeout_s is None else self._now() + timeout_s
        while True:
            wait_s = _WAIT_S if left_s is None else min(_WAIT_S, max(0.0, left_s))
            began_s = self._now()
            ending = yield from self.ask(self._ending(job_id, wait_s))
            if isinstance(ending, Settled):
                return ending
            if until_s is not None:
                left_s = until_s - self._now()
                if left_s <= 0:
                    waited = duration_text(timeout_s or 0)
                    raise WaitTimeout(
                        f"job {job_id} is {ending} after {waited}; it continues: wait again, or read it later"
                    )
            if wait_s and self._now() - began_s < min(1.0, wait_s):
                # pause if the server did not wait as requested
                yield RetryPause(1.0 if left_s is None else min(1.0, left_s))

    def wait(self, job_id: str, timeout: Duration | None) -> Flow[JobView]:
        yield from self.settled(job_id, timeout)
        return (yield from self.job(job_id, payload=True))

    def result(self, job_id: str, timeout: Duration | None, returns: Any) -> Flow[Any]:
        ended = yield from self.settled(job_id, timeout)
        if ended.status != "succeeded":
            job = yield from self.job(job_id, payload=False)
            raise job_failure(job_id, job.name, ended.status, ended.reason, ended.error)
        if ended.shown != "whole":
            # a masked value is not the result: better no result than a wrong one
            raise RequestRefused(
                403,
                "result_not_shown",
                f"the result of job {job_id} is not shown in full; use a token with the scope submit"
                if ended.shown == "masked"
                else f"this server hides results (--no-payloads), also that of job {job_id}",
            )
        try:
            return msgspec.convert(ended.result, returns)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"the result of job {job_id}", f"has another type: {error}") from None

    def _ending(self, job_id: str, wait_s: float) -> ApiCall[Settled | str]:
        """The result of a job, or its current status."""
        path = calls.with_query(self._of(job_id, "result"), self.query(wait=f"{round(wait_s * 1000)}ms"))

        def read(answer: ApiAnswer) -> Settled | str:
            if answer.status != _PENDING:
                ended: Settled = calls.read_answer(answer, Settled)
                return ended
            problem = calls.read_as(answer.body, dict[str, Any])
            if problem.get("type") != "not_settled":
                raise error_of(answer, call)
            return str(problem.get("job_status"))

        call: ApiCall[Settled | str] = ApiCall(
            method="GET", path=path, read=read, safe=True, accepts=(_PENDING,), wait_s=wait_s
        )
        return call

    # change -----------------------------------------------------------------------------------------

    def cancel(self, job_id: str, reason: str | None, version: int | None) -> Flow[JobView]:
        # idempotent
        return self._change(job_id, "cancel", {"reason": reason}, version, safe=version is None)

    def retry(self, job_id: str, reason: str | None, version: int | None) -> Flow[JobView]:
        return self._change(job_id, "retry", {"reason": reason}, version)

    def set_priority(self, job_id: str, priority: int, version: int | None) -> Flow[JobView]:
        return self._change(job_id, "priority", {"priority": priority}, version, safe=version is None)

    def force(self, job_id: str, to: str, reason: str, version: int | None) -> Flow[JobView]:
        path, body = self._of(job_id, "force"), {"to": to, "reason": reason}
        return self.ask(post(path, JobView, body, query=self.query(), If_Match=tag(version) or "*"))

    def delete(self, job_id: str, reason: str | None, version: int | None) -> Flow[None]:
        query = self.query(reason=reason)
        yield from self.ask(calls.delete(self._of(job_id), JobDeleted, query, If_Match=tag(version) or "*"))

    def act(
        self,
        action: Action,
        *,
        ids: Sequence[str] | None,
        filters: JobFilters | None,
        dry_run: bool,
        limit: int | None,
        reason: str | None,
    ) -> Flow[BulkResult]:
        body = {
            "action": action,
            "ids": None if ids is None else [getattr(each, "id", each) for each in ids],
            "filter": None if filters is None else self.listed(filters),
            "dry_run": dry_run,
            "limit": limit,
            "reason": reason,
        }
        return self.ask(post("/jobs/actions", BulkResult, body, safe=dry_run, query=self.query()))

    def listed(self, filters: JobFilters) -> dict[str, Any]:
        """A filter for a request."""
        given: dict[str, Any] = {name: value for name, value in filters.items() if value is not None}
        for name in given.keys() - JobFilters.__annotations__.keys():
            raise InvalidInput(name, f"is not a filter; use {', '.join(sorted(JobFilters.__annotations__))}")
        if "status" in given:
            given["status"] = _many(given["status"])
        for name in given.keys() & {"older_than", "newer_than"}:
            given[name] = duration(given[name], field=name)
        return given

    def _change(
        self, job_id: str, what: str, body: Mapping[str, Any], version: int | None, *, safe: bool = False
    ) -> Flow[JobView]:
        path = self._of(job_id, what)
        return self.ask(post(path, JobView, body, safe=safe, query=self.query(), If_Match=tag(version)))

    def _of(self, job_id: str, what: str = "") -> str:
        return job_path(job_id, what)


def job_path(job_id: str, what: str = "") -> str:
    """The path of a job; raises `InvalidInput` for a malformed id, which could be another path."""
    check_id(job_id, field="id")
    return f"/jobs/{job_id}/{what}" if what else f"/jobs/{job_id}"


def tag(version: int | None) -> str | None:
    """A version as an entity tag."""
    return None if version is None else f'"{version}"'


def _many(status: str | Sequence[str] | None) -> list[str] | None:
    return [status] if isinstance(status, str) else None if status is None else list(status)


__all__ = ["Action", "Core", "Duration", "JobFilters", "job_path", "tag"]
