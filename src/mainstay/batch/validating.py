"""Validation: a look at every expected output, kept with its list, and moved on from."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from typing import Any

import msgspec

from ..control import Control
from ..errors import InvalidTransition, OutputCorrupt, OutputMissing, StoreError
from ..lifecycle import Move
from ..model import Job
from ..outputs import Manifest, OutputStore
from ..outputs.layout import CURRENT
from ..task.sealing import Sealer
from .findings import FEW, Lacking, Tally, Validation, tally
from .outside import kept
from .spec import Spec

#: entries of a page of a stored list
PAGE = 1000
VALIDATIONS = f"{CURRENT}/_validations"


async def look(
    store: OutputStore, manifest: Manifest, spec: Spec, *, at_ms: int, attempt: int, by: str, fresh: bool = False
) -> Validation:
    """Look at everything, and keep what is lacking. A storage that is away is an answer, not an error."""
    try:
        found = await tally(store, manifest, verify=spec.verify, fresh=fresh)
        if found.verdict == "unknown":
            return _told(found, spec, at_ms=at_ms, attempt=attempt, by=by)
        listed = await _kept(store, manifest.job, attempt, found.lacking)
    except StoreError as error:
        if isinstance(error, OutputMissing | OutputCorrupt):
            raise
        return away(spec, error, at_ms=at_ms, attempt=attempt, by=by)
    return _told(found, spec, at_ms=at_ms, attempt=attempt, by=by, listed=listed)


def away(spec: Spec, error: StoreError, *, at_ms: int, attempt: int, by: str) -> Validation:
    """What can be said when nobody answers."""
    return Validation(
        at_ms=at_ms,
        attempt=attempt,
        by=by,
        verdict="unknown",
        expected=spec.expected,
        present=0,
        unreadable=spec.expected,
        why=str(error)[:500],
    )


async def listed(store: OutputStore, validation: Validation, *, page: int = 0) -> list[Lacking]:
    """A page of what a validation found lacking; empty after the last."""
    if not validation.listed:
        return []
    (body,) = await store.blobs.read([_page_path(validation.listed, page)])
    if isinstance(body, StoreError):
        raise body
    if body is None:
        return []
    lines = (await asyncio.to_thread(gzip.decompress, body)).splitlines()
    return [msgspec.json.decode(line, type=Lacking) for line in lines]


def result_of(validation: Validation, sealer: Sealer) -> bytes:
    """The result of a batch: what its last validation came to."""
    return sealer.seal(msgspec.msgpack.encode(msgspec.to_builtins(validation)))


def validation_of(job: Job, sealer: Sealer) -> Validation | None:
    """What the last validation of a job came to, if there was one."""
    if job.result is None:
        return None
    return msgspec.msgpack.decode(sealer.open(job.result, field="result"), type=Validation)


async def settle(control: Control, job_id: str, validation: Validation, sealer: Sealer, *, actor: str) -> Job:
    """Move a batch to what a validation found, if that is where it may go; else leave it, and keep the finding."""
    details: dict[str, Any] = {"validation": _short(validation)}
    fields = {"result": result_of(validation, sealer)}

    def decide(row: Job, _: int) -> tuple[Move, ...]:
        told = kept(validation.told, row.reason)
        note = Move(to=row.status, reason=told, details=details, flag="note")
        if validation.verdict == "unknown":
            noted = msgspec.structs.replace(note, fields={"reason": told})
            return (noted,) if row.status == "validating" else ()
        if row.status == "validating":
            return (Move(to=validation.verdict, reason=told, details=details, fields=fields),)
        if row.status == "partial":
            if validation.verdict == "succeeded":
                return (Move(to="succeeded", reason=told, details=details, fields=fields),)
            same = row.reason == told
            return () if same else (msgspec.structs.replace(note, fields={**fields, "reason": told}),)
        if row.status == "failed":
            return (note,)
        if row.status in ("succeeded", "cancelled", "skipped", "quarantined", "timed_out"):
            return ()
        raise InvalidTransition(
            row.id,
            row.status,
            "validating",
            allowed=(),
            why="it is still at work; what is there and what is not is told when it is done",
        )

    return await control.act(job_id, decide, actor=actor)


def _short(validation: Validation) -> dict[str, Any]:
    """For the audit trail: counts, not lists."""
    return {
        name: value
        for name, value in msgspec.to_builtins(validation).items()
        if name not in ("first", "why") and value not in (0, "")
    }


def _told(found: Tally, spec: Spec, *, at_ms: int, attempt: int, by: str, listed: str = "") -> Validation:
    return Validation(
        at_ms=at_ms,
        attempt=attempt,
        by=by,
        verdict=found.verdict,
        expected=spec.expected,
        present=found.states["present"],
        missing=found.states["missing"],
        corrupt=found.states["corrupt"],
        unreadable=found.states["unreadable"],
        units=found.units,
        first=tuple(found.lacking[:FEW]),
        listed=listed,
        why=found.why[:500],
    )


async def _kept(store: OutputStore, job_id: str, attempt: int, lacking: Sequence[Lacking]) -> str:
    """Write the list down, a page at a time: what the names of its pages begin with; nothing if nothing lacks."""
    if not lacking:
        return ""
    first = f"{VALIDATIONS}/{job_id}/{attempt:04d}"
    for number, start in enumerate(range(0, len(lacking), PAGE)):
        lines = b"\n".join(msgspec.json.encode(one) for one in lacking[start : start + PAGE])
        await store.blobs.write(_page_path(first, number), gzip.compress(lines, mtime=0))
    return first


def _page_path(first: str, number: int) -> str:
    return f"{first}-{number:05d}.ndjson.gz"
