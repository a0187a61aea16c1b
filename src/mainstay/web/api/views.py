"""Masked views of jobs and events, for the API, the streams and the dashboard."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from ...control import EventView, JobView, event_view, job_view, readable_value
from ...kinds import kind_named, part
from ...lifecycle import Event
from ...model import Job
from ...stores import size_left_out
from .masker import Masker
from .secret_search import MOST_PARTS, parts_at_most
from .text_mask import TextMask


def masked_job(job: Job, masker: Masker, *, payload: bool) -> JobView:
    """The view of a job with masked texts (`text_mask.shown_jobs`). With `payload`, it includes payload, result and
    checkpoint, unless payloads are hidden."""
    options = job.options
    if options.metadata:
        masked = msgspec.structs.replace(options, metadata=masker.mask(options.metadata))
        job = msgspec.structs.replace(job, options=masked)
    if payload and masker.shows:
        return job_view(job, lambda job, name: value_view(job, name, masker))
    return job_view(job)


def value_view(job: Job, name: str, masker: Masker) -> Any:
    """A masked payload, result or checkpoint. A value that cannot be decoded cannot be masked, so it is not shown."""
    stored: bytes | None = getattr(job, name)
    if stored is None:
        return None
    left_out = size_left_out(stored)
    if left_out is not None:
        return {"left_out": f"{left_out} bytes"}
    if masker.hides and parts_at_most(stored) > MOST_PARTS:
        return {"left_out": f"{len(stored)} bytes, in too many lists and maps to show"}
    try:
        value = readable_value(stored)
        if masker.may_hide(stored):
            value = masker.mask(value)
    except (ValueError, RecursionError):
        return {"undecodable": f"{len(stored)} bytes"}
    kind = kind_named(job.kind)
    return part(kind.masked_value)(name, value, masker) if kind is not None and kind.masked_value else value


def size_of(job: Job) -> int:
    """The size of its values in bytes."""
    return len(job.payload) + len(job.result or b"") + len(job.checkpoint or b"")


def masked_event(event: Event, mask: TextMask) -> EventView:
    """The view of a masked event."""
    return event_view(mask.event(event))


def etag_of(job: Job) -> str:
    """Changes with the job: its version, and a checksum of the reports of its worker, which do not change the
    version."""
    reported = (job.starts, job.started_ms, job.progress_ms, job.progress, job.checkpoint)
    if not any(reported):
        return f'"{job.version}"'
    return f'"{job.version}-{zlib.crc32(msgspec.msgpack.encode(reported)):08x}"'


__all__ = ["etag_of", "masked_event", "masked_job", "size_of", "value_view"]
