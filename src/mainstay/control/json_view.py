"""How jobs and what belongs to them look to programs: plain data for JSON, the same wherever it is asked for."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from ..lifecycle import Event
from ..model import Job, Options, Session
from .schedules import ScheduleView


class Extension:
    """An extension type of MessagePack within stored data. Nobody knows what it stands for, so as text it is told which
    one it is, and how large."""

    def __init__(self, code: int, data: memoryview) -> None:
        self.value = msgspec.msgpack.Ext(code, bytes(data))
        self._told = f"extension type {code}, {len(data)} bytes"

    def __str__(self) -> str:
        return self._told


_decode = msgspec.msgpack.Decoder(ext_hook=Extension).decode

#: what belongs to the user and may be secret; shown only when asked for
PRIVATE = ("payload", "result", "checkpoint")


def job_data(job: Job, *, payload: bool = False) -> dict[str, Any]:
    """A job for programs."""
    data = {
        **msgspec.structs.asdict(job),
        "options": options_data(job.options),
        "error": msgspec.to_builtins(job.error),
        "progress": msgspec.to_builtins(job.progress),
        "head": job.head.hex(),
        "trimmed_digest": job.trimmed_digest.hex(),
    }
    for name in PRIVATE:
        stored = data.pop(name)
        if payload:
            data[name] = None if stored is None else stored_value(stored)
    return data


def event_data(event: Event) -> dict[str, Any]:
    """An event for programs."""
    return {**msgspec.structs.asdict(event), "details": event.data or None, "digest": event.digest.hex()}


def options_data(options: Options) -> dict[str, Any]:
    """By name: in the store they are an array."""
    return {**msgspec.structs.asdict(options), "retry": msgspec.structs.asdict(options.retry)}


def stored_value(stored: bytes) -> Any:
    """A payload, result or checkpoint. One that was sealed, or cannot be shown as JSON, is given as it is stored."""
    try:
        return readable_value(stored)
    except ValueError:
        return {"undecodable": stored.hex()}


def readable_value(stored: bytes) -> Any:
    """The same; raises `ValueError` for one that cannot be read."""
    try:
        value = _decode(stored)
        msgspec.json.encode(value, enc_hook=str)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if isinstance(value, Extension):
        raise ValueError("it is sealed by a codec")
    return value


def session_data(session: Session) -> dict[str, Any]:
    """A session, with the names of the queues and tasks that it serves; None: it does not say. Its last beat is left
    out: that is time of the lease clock, and no date."""
    data: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(session, offer=None))
    del data["beat_ms"], data["offer"]
    data["queues"] = None if session.offer is None else list(session.offer.queues)
    data["tasks"] = None if session.offer is None else sorted(session.offer.tasks)
    return data


def schedule_data(view: ScheduleView) -> dict[str, Any]:
    """A schedule."""
    return {
        "name": view.name,
        "when": view.when,
        "tz": view.tz,
        "task": view.task,
        "paused": view.paused,
        "registered": view.registered,
        "catch_up": view.catch_up,
        "overlap": view.overlap,
        "next_ticks_ms": [_ms(tick) for tick in view.next_ticks],
        "last_tick_ms": None if view.last_tick is None else _ms(view.last_tick),
        "counted_from_ms": None if view.counted_from is None else _ms(view.counted_from),
        "last_job": None if view.last_job is None else {"id": view.last_job, "status": view.last_status},
        "ticks_without_job": view.ticks_without_job,
        "problem": view.problem,
    }


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
