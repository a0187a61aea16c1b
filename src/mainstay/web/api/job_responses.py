"""Responses of the API about jobs: the server makes them, OpenAPI describes them, the client reads them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...control import EventView, JobView, SessionView
from ...control.bulk import BulkAnswer
from ...stores import RefusedWrite


class ProblemView(msgspec.Struct, kw_only=True):
    """Why a request was refused."""

    type: str
    """a stable code"""
    title: str
    status: int
    detail: str
    """for people: what happened, and what to do"""
    field: str | None = None
    """the field of the request that was wrong"""
    retry_after_s: float | None = None
    """of `overloaded` and `rate_limited`: the seconds after which the request may be made again; `Retry-After` has them
    rounded up"""


class SubmitResponse(msgspec.Struct, kw_only=True):
    """The submitted job."""

    id: str
    created: bool
    """false: it existed before, with the same key or unique key"""
    durability: str
    """the failures that the stored job survives, in words"""


class SubmitManyResponse(msgspec.Struct, kw_only=True):
    """One response for each job, in the order of the request."""

    jobs: list[SubmitResponse]
    created: int


class SubmitGroupResponse(msgspec.Struct, kw_only=True):
    """The jobs of a group, and the job that waits for them."""

    then: SubmitResponse
    """`created` is false if it existed before: then nothing was stored"""
    members: list[SubmitResponse]
    """in the order of the request; if `then` existed before, the jobs that it waits or waited for"""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs, and the cursor of the next page."""

    jobs: tuple[JobView, ...]
    next: str | None
    """the cursor of the next page; null on the last page. A page may be short, or empty, and still have a next one"""
    finished: bool = True
    """false: the search in texts takes longer than one request; these jobs were found so far, and there may be more
    from `next` on"""


class UnitPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some units of a job."""

    units: tuple[JobView, ...]
    counts: dict[str, int]
    """all units, by status"""
    next: str | None


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some events of a job, in order."""

    events: tuple[EventView, ...]
    next: int | None
    """the `after` of the next page; null on the last page"""


class WorkingSession(SessionView, frozen=True, kw_only=True):
    """A process of a worker, and the newest jobs that it holds."""

    holds: int
    jobs: tuple[JobView, ...]


class WorkerList(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of the workers, live ones first."""

    sessions: list[WorkingSession]


class DrainedSessions(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that received the request: all processes of the worker, or of all workers with the name."""

    sessions: list[SessionView]


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a bulk operation, or its preview."""

    action: str
    dry_run: bool
    matched: int
    """the number of selected jobs, up to the limit of one request"""
    counts: dict[str, int]
    """the selected jobs by status"""
    sample: tuple[JobView, ...]
    """the first of them, as they were before the operation"""
    done: int
    refused: int
    refusals: tuple[BulkAnswer, ...]
    """the first refused jobs, with reasons"""
    more: bool
    """more jobs may match: repeat the request"""


class JobResult(msgspec.Struct, kw_only=True):
    """The result of a job."""

    id: str
    status: str
    reason: str | None
    result: Any
    error: Any
    shown: Literal["whole", "masked", "none"]
    """how much of the result is shown: callers with the scope `submit` get all of it, since a masked value is not the
    result"""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """The audit trail in words, oldest events first."""

    lines: list[str]
    refusals: list[RefusedWrite]


class SectionView(msgspec.Struct, kw_only=True):
    title: str
    sentences: list[str]


class AdviceView(msgspec.Struct, kw_only=True):
    why: str
    command: str


class ExplanationView(msgspec.Struct, kw_only=True):
    """A job, explained in sentences."""

    id: str
    name: str
    status: str | None
    """null: the job was deleted"""
    sections: list[SectionView]
    advice: list[AdviceView]


class AwaitedJobs(msgspec.Struct, kw_only=True):
    """The jobs that a job waits for, or waited for."""

    ids: list[str]


class JobDeleted(msgspec.Struct, kw_only=True):
    id: str
    deleted: Literal[True]
