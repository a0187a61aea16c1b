"""Validation: check every expected output, store the result with its list, and move the batch by it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from ..control import Control
from ..errors import InvalidInput, InvalidTransition, StoreError
from ..lifecycle import Move
from ..model import Job
from ..outputs import LAYOUT_VERSION, Manifest, OutputStore
from ..task import Sealer
from .outside_job import with_outside_job
from .spec import Spec
from .validation_result import OutputStatus, OutputTally, Validation, findings_in

#: entries per page of a stored list
PAGE = 1000
VALIDATIONS = f"{LAYOUT_VERSION}/_validations"
_RECORD = ".record"
#: validations of a batch that are read
_REMEMBERED = 100


async def validate(
    store: OutputStore, manifest: Manifest, spec: Spec, *, at_ms: int, attempt: int, by: str, fresh: bool = False
) -> Validation:
    """Check all outputs, and store the verdict and the list of defects beside them. Storage that does not answer is the
    verdict "unknown", not an error."""
    tally = OutputTally()
    # two validations at the same time have the same number, and may find different defects
    name = f"{VALIDATIONS}/{manifest.job}/{attempt:04d}-{at_ms}-{os.urandom(4).hex()}"
    pages = _Pages(store, name)
    try:
        for number, group in enumerate(manifest.groups):
            source = spec.sources[number] if number < len(spec.sources) else ""
            async for index, findings in findings_in(store, group, verify=spec.verify, fresh=fresh):
                tally.add(number, index, findings, group.outputs, source)
                if len(tally.page) >= PAGE:
                    if not tally.states["unreadable"]:
                        await pages.add(tally.page)
                    tally.page = []
        result = tally.result(at_ms=at_ms, attempt=attempt, by=by, expected=spec.expected)
        if result.verdict == "unknown":
            return result
        await pages.add(tally.page)
        result = msgspec.structs.replace(result, listed=name if pages.pages else "")
        # a final batch takes no more notes in its audit trail, so each validation has a record beside the outputs
        await store.blobs.write(f"{name}{_RECORD}", msgspec.json.encode(msgspec.structs.replace(result, first=())))
    except StoreError as error:
        return storage_away(spec, error, at_ms=at_ms, attempt=attempt, by=by)
    return result


async def history(store: OutputStore, job_id: str) -> list[Validation]:
    """The last validations of a batch, oldest first. Raises `StoreError` if the storage does not answer."""
    folder = f"{VALIDATIONS}/{job_id}"
    (files,) = await store.blobs.find([folder])
    if isinstance(files, StoreError):
        raise files
    names = sorted(name for name in files if name.endswith(_RECORD))[-_REMEMBERED:]
    validations = []
    for body in await store.blobs.read([f"{folder}/{name}" for name in names]):
        if isinstance(body, StoreError):
            raise body
        with contextlib.suppress(msgspec.DecodeError):  # damaged, or written by another version
            validations.append(msgspec.json.decode(body or b"", type=Validation))
    return sorted(validations, key=lambda one: one.at_ms)


class _Pages:
    """The list of defects, which may be long: written page by page."""

    def __init__(self, store: OutputStore, first: str) -> None:
        self._store = store
        self.first = first
        self.pages = 0

    async def add(self, lacking: Sequence[OutputStatus]) -> None:
        if lacking:
            lines = b"\n".join(msgspec.json.encode(one) for one in lacking)
            await self._store.blobs.write(_page_path(self.first, self.pages), gzip.compress(lines, mtime=0))
            self.pages += 1


def storage_away(spec: Spec, error: StoreError, *, at_ms: int, attempt: int, by: str) -> Validation:
    """The result if the storage does not answer."""
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


async def listed(store: OutputStore, validation: Validation, *, page: int = 0) -> list[OutputStatus]:
    """A page of the defects that a validation found; empty after the last."""
    if not validation.listed:
        return []
    (body,) = await store.blobs.read([_page_path(validation.listed, page)])
    if isinstance(body, StoreError):
        raise body
    if body is None:
        return []
    lines = (await asyncio.to_thread(gzip.decompress, body)).splitlines()
    return [msgspec.json.decode(line, type=OutputStatus) for line in lines]


def result_of(validation: Validation, sealer: Sealer) -> bytes:
    """The stored result of a batch: its last validation."""
    return sealer.seal(msgspec.msgpack.encode(msgspec.to_builtins(validation)))


def validation_of(job: Job, sealer: Sealer) -> Validation | None:
    """The last validation of a job; None if there was none."""
    if job.result is None:
        return None
    try:
        return msgspec.msgpack.decode(sealer.open(job.result, field="result"), type=Validation)
    except msgspec.DecodeError as error:
        raise InvalidInput("job", f"{job.id}: its last validation cannot be read: {error}") from None


async def settle(
    control: Control, job_id: str, validation: Validation, sealer: Sealer, *, actor: str, version: int | None = None
) -> Job:
    """Move a batch by the result of a validation if its state allows it; otherwise record the result."""
    details: dict[str, Any] = {"validation": _short(validation)}
    fields = {"result": result_of(validation, sealer)}

    def decide(row: Job, _: int) -> tuple[Move, ...]:
        reason = with_outside_job(validation.summary, row.reason)
        note = Move(to=row.status, reason=reason, details=details, flag="note")
        if validation.verdict == "unknown":
            noted = msgspec.structs.replace(note, fields={"reason": reason})
            return (noted,) if row.status == "validating" else ()
        if row.status == "validating":
            return (Move(to=validation.verdict, reason=reason, details=details, fields=fields),)
        if row.status == "partial":
            last = validation_of(row, sealer)
            if last is not None and last.at_ms > validation.at_ms:
                return ()  # a later validation was recorded first
            if validation.verdict == "succeeded":
                return (Move(to="succeeded", reason=reason, details=details, fields=fields),)
            return (msgspec.structs.replace(note, fields={**fields, "reason": reason}),)
        if row.status in ("failed", "quarantined", "timed_out"):
            return (note,)
        if row.status in ("succeeded", "cancelled", "skipped"):
            return ()
        raise InvalidTransition(
            row.id,
            row.status,
            "validating",
            allowed=(),
            why="it is still running; its outputs are validated when it is done",
        )

    return await control.drivers.act(job_id, decide, actor=actor, version=version)


def _short(validation: Validation) -> dict[str, Any]:
    """The counts of a validation, for the audit trail."""
    return {
        name: value
        for name, value in msgspec.to_builtins(validation).items()
        if name not in ("first", "why") and value not in (0, "")
    }


def _page_path(first: str, number: int) -> str:
    return f"{first}-{number:05d}.ndjson.gz"
