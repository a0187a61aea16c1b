"""What answers look like, for the description. The views make them; a test holds both together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ...lifecycle import Event
from ...model import Job, Options, RetryPolicy, Session
from ...stores import Refusal


def _shape(name: str, of: type[msgspec.Struct], doc: str, *, without: tuple[str, ...] = (), **other: Any) -> Any:
    """As a struct is stored, with some fields shown otherwise; those of `other` that it has not are added."""
    fields = [
        (field.name, other.pop(field.name, field.type))
        for field in msgspec.structs.fields(of)
        if field.name not in without
    ]
    added = [(field, *kind) if isinstance(kind, tuple) else (field, kind) for field, kind in other.items()]
    return msgspec.defstruct(name, [*fields, *added], kw_only=True, namespace={"__doc__": doc})


if TYPE_CHECKING:
    # made of the structs themselves, at run time
    JobShape: TypeAlias = Any
    EventShape: TypeAlias = Any
    RefusalShape: TypeAlias = Any
    SessionShape: TypeAlias = Any
    WorkingShape: TypeAlias = Any
else:
    _Policy = _shape("RetryPolicy", RetryPolicy, "How often and how soon a failed attempt is tried again.")
    _Options = _shape("JobOptions", Options, "What was asked for at submit and never changes.", retry=_Policy)
    JobShape = _shape(
        "Job",
        Job,
        "A job or unit. Times are milliseconds since 1970, UTC. Payload, result and checkpoint are there if they are "
        "asked for and may be shown.",
        without=("payload", "result", "checkpoint"),
        options=_Options,
        head=str,
        trimmed_digest=str,
        payload=(Any, None),
        result=(Any, None),
        checkpoint=(Any, None),
    )
    EventShape = _shape("Event", Event, "One line of a job's audit trail.", details=dict[str, Any] | None, digest=str)
    RefusalShape = _shape("Refusal", Refusal, "A write of a lost claim that was refused.")
    _seen = {
        "without": ("beat_ms", "offer"),
        "queues": tuple[str, ...] | None,
        "tasks": tuple[str, ...] | None,
        "at_work": bool,
        "silent_ms": int,
        "age_ms": int,
    }
    SessionShape = _shape("Session", Session, "A worker's process.", **_seen)
    WorkingShape = _shape(
        "Working",
        Session,
        "A worker's process, and the newest of what it holds.",
        **_seen,
        holds=int,
        jobs=list[JobShape],
    )


class Problem(msgspec.Struct, kw_only=True):
    """Why something was refused."""

    type: str
    """a stable code"""
    title: str
    status: int
    detail: str
    """for people: what happened, to what, and what to do next"""
    field: str | None = None
    """what was wrong with the request"""


class Submitted(msgspec.Struct, kw_only=True):
    """The job that stands for a submit."""

    id: str
    created: bool
    """False: it was there before, by its key or its unique key"""
    durability: str
    """what this answer survives, in words"""


class SubmittedMany(msgspec.Struct, kw_only=True):
    """One for each job that was sent, in the same order."""

    jobs: list[Submitted]
    created: int


class SubmittedGroup(msgspec.Struct, kw_only=True):
    """Jobs, and the one that waits for them."""

    then: Submitted
    """`created` is false if it was there before: then nothing was stored now"""
    members: list[Submitted]
    """in the order that they were sent; if `then` was there before, those that it waits or waited for"""


class JobPage(msgspec.Struct, kw_only=True):
    """Some jobs, and where to go on."""

    jobs: list[JobShape]
    next: str | None
    """the cursor of the next page; null on the last. A page may be short, or empty, and still have a next"""
    finished: bool
    """false: it has not finished looking (a search in texts takes long among many), and gives what it found so far.
    There may be more from `next` on"""


class UnitPage(msgspec.Struct, kw_only=True):
    """Some units of a job."""

    units: list[JobShape]
    counts: dict[str, int]
    """all of them, by status"""
    next: str | None


class Trail(msgspec.Struct, kw_only=True):
    """Some events of a job, in order."""

    events: list[EventShape]
    next: int | None
    """ask on with `after` set to this; null: these were all"""


class Result(msgspec.Struct, kw_only=True):
    """How a job ended."""

    id: str
    status: str
    reason: str | None
    result: Any
    error: Any
    shown: Literal["whole", "masked", "none"]
    """how much of the result: whoever may submit is told all of it, for a masked one is not what was returned"""


class Story(msgspec.Struct, kw_only=True):
    """The audit trail in words, newest events last."""

    lines: list[str]
    refusals: list[RefusalShape]


class Sentences(msgspec.Struct, kw_only=True):
    title: str
    sentences: list[str]


class Advised(msgspec.Struct, kw_only=True):
    why: str
    command: str


class Explained(msgspec.Struct, kw_only=True):
    """A job's story in sentences."""

    id: str
    name: str
    status: str | None
    """null: it was deleted"""
    sections: list[Sentences]
    advice: list[Advised]


class Awaited(msgspec.Struct, kw_only=True):
    """What a job waits for, or waited for."""

    ids: list[str]


class Deleted(msgspec.Struct, kw_only=True):
    id: str
    deleted: Literal[True]
