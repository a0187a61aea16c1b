"""The one JSON form of everything that the server shows: the API, the live streams and the dashboard use the same."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from ...batch.spec import KIND as BATCH
from ...control.explain import is_alive
from ...control.json_view import PRIVATE, event_data, job_data, readable_value, schedule_data, session_data
from ...lifecycle import Event
from ...model import Job, Session
from ...stores import Refusal
from ...stores.left_out import size_left_out
from .masking import Masker
from .secret_search import MOST_PARTS, parts_at_most
from .veil import Veil, veiled_validation


def job_view(job: Job, masker: Masker, *, payload: bool) -> dict[str, Any]:
    """A job whose texts may be shown (`veil.shown_jobs`). Its payload, result and checkpoint are in it if they are
    wanted and may be shown at all."""
    data = job_data(job)
    data["options"]["metadata"] = masker.mask(job.options.metadata)
    if payload and masker.shows:
        data |= {name: value_view(job, name, masker) for name in PRIVATE}
    return data


def value_view(job: Job, name: str, masker: Masker) -> Any:
    """A payload, result or checkpoint. A value that cannot be read cannot be masked, so it is not shown at all."""
    stored: bytes | None = getattr(job, name)
    if stored is None:
        return None
    left_out = size_left_out(stored)
    if left_out is not None:
        return {"left_out": f"{left_out} bytes"}
    if masker.hides and parts_at_most(stored) > MOST_PARTS:
        return {"left_out": f"{len(stored)} bytes, in too many lists and tables to show"}
    try:
        value = readable_value(stored)
        if masker.may_hide(stored):
            value = masker.mask(value)
    except (ValueError, RecursionError):
        return {"undecodable": f"{len(stored)} bytes"}
    return veiled_validation(value, masker) if job.kind == BATCH and name == "result" else value


def size_of(job: Job) -> int:
    """The bytes of its values."""
    return len(job.payload) + len(job.result or b"") + len(job.checkpoint or b"")


def event_view(event: Event, veil: Veil) -> dict[str, Any]:
    """One line of an audit trail."""
    return event_data(veil.event(event))


def refusal_view(refusal: Refusal) -> dict[str, Any]:
    """A write of a lost claim that was refused."""
    found: dict[str, Any] = msgspec.to_builtins(refusal)
    return found


def session_view(session: Session, *, lease_ms: int, now_ms: int) -> dict[str, Any]:
    """A worker's process: whether it is at work, and when it was last heard of."""
    return {
        **session_data(session),
        "at_work": is_alive(session, lease_ms),
        "silent_ms": max(0, lease_ms - session.beat_ms),
        "age_ms": max(0, now_ms - session.started_ms),
    }


def etag_of(job: Job) -> str:
    """Changes whenever the job looks different: its version, and what its holder has reported, which moves nothing."""
    reported = (job.starts, job.started_ms, job.progress_ms, job.progress, job.checkpoint)
    if not any(reported):
        return f'"{job.version}"'
    return f'"{job.version}-{zlib.crc32(msgspec.msgpack.encode(reported)):08x}"'


__all__ = [
    "etag_of",
    "event_view",
    "job_view",
    "refusal_view",
    "schedule_data",
    "session_view",
    "size_of",
    "value_view",
]
