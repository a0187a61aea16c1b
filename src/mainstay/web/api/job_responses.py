"""What the API answers, as data: the server makes these, its description is made from them, the client reads them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...control.bulk import BulkAnswer
from ...control.json_view import EventView, JobView, SessionView
from ...stores import RefusedWrite


class ProblemView(msgspec.Struct, kw_only=True):
    """Why something was refused."""

    type: str
    """a stable code"""
    title: str
    status: int
    detail: str
    """for people: what happened, to what, and what to do next"""
    field: str | None = None
    """what was wrong with the request"""


class SubmitResponse(msgspec.Struct, kw_only=True):
    """The job that stands for a submit."""

    id: str
    created: bool
    """False: it was there before, by its key or its unique key"""
    durability: str
    """what this answer survives, in words"""


class SubmitManyResponse(msgspec.Struct, kw_only=True):
    """One for each job that was sent, in the same order."""

    jobs: list[SubmitResponse]
    created: int


class SubmitGroupResponse(msgspec.Struct, kw_only=True):
    """Jobs, and the one that waits for them."""

    then: SubmitResponse
    """`created` is false if it was there before: then nothing was stored now"""
    members: list[SubmitResponse]
    """in the order that they were sent; if `then` was there before, those that it waits or waited for"""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs, and the cursor of the next page."""

    jobs: tuple[JobView, ...]
    next: str | None
    """the cursor of the next page; null on the last. A page may be short, or empty, and still have a next"""
    finished: bool = True
    """false: the search is not finished (a search in texts takes long among many jobs), and these were found so far;
    there may be more from `next` on"""


class UnitPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some units of a job."""

    units: tuple[JobView, ...]
    counts: dict[str, int]
    """all of them, by status"""
    next: str | None


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some events of a job, in order."""

    events: tuple[EventView, ...]
    next: int | None
    """ask on with `after` set to this; null: these were all"""


class WorkingSession(SessionView, frozen=True, kw_only=True):
    """A worker's process, and the newest jobs that it holds."""

    holds: int
    jobs: tuple[JobView, ...]


class WorkerList(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of the workers, the living first."""

    sessions: list[WorkingSession]


class DrainedSessions(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that were asked to drain: all processes of the worker, or of all workers that have the name."""

    sessions: list[SessionView]


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to many jobs, or would be."""

    action: str
    dry_run: bool
    matched: int
    """number of jobs meant; of those found by a filter, as far as one request goes"""
    counts: dict[str, int]
    """the same by status"""
    sample: tuple[JobView, ...]
    """the first of them, as they were before"""
    done: int
    refused: int
    refusals: tuple[BulkAnswer, ...]
    """the first of the refused, and why"""
    more: bool
    """more jobs may match: ask again"""


class JobResult(msgspec.Struct, kw_only=True):
    """How a job ended."""

    id: str
    status: str
    reason: str | None
    result: Any
    error: Any
    shown: Literal["whole", "masked", "none"]
    """how much of the result: whoever may submit is told all of it, for a masked one is not what was returned"""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """The audit trail in words, newest events last."""

    lines: list[str]
    refusals: list[RefusedWrite]


class SectionView(msgspec.Struct, kw_only=True):
    title: str
    sentences: list[str]


class AdviceView(msgspec.Struct, kw_only=True):
    why: str
    command: str


class ExplanationView(msgspec.Struct, kw_only=True):
    """A job's story in sentences."""

    id: str
    name: str
    status: str | None
    """null: it was deleted"""
    sections: list[SectionView]
    advice: list[AdviceView]


class AwaitedJobs(msgspec.Struct, kw_only=True):
    """What a job waits for, or waited for."""

    ids: list[str]


class JobDeleted(msgspec.Struct, kw_only=True):
    id: str
    deleted: Literal[True]
