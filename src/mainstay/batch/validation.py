"""Validation: a look at every expected output, kept with its list, and moved on from."""

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
from ..outputs import Manifest, OutputStore
from ..outputs.layout import CURRENT
from ..task.codec import Sealer
from .outside_job import kept
from .spec import Spec
from .validation_result import OutputDefect, OutputTally, Validation, seen_in

#: entries of a page of a stored list
PAGE = 1000
VALIDATIONS = f"{CURRENT}/_validations"
_RECORD = ".record"
#: validations of a batch that are read back
_REMEMBERED = 100


async def look(
    store: OutputStore, manifest: Manifest, spec: Spec, *, at_ms: int, attempt: int, by: str, fresh: bool = False
) -> Validation:
    """Look at everything, and keep the verdict and what is lacking beside the outputs. A storage that is away is an
    answer, not an error."""
    found = OutputTally()
    # two who look at the same time number their looks alike, and one may find more than the other
    name = f"{VALIDATIONS}/{manifest.job}/{attempt:04d}-{at_ms}-{os.urandom(4).hex()}"
    pages = _Pages(store, name)
    try:
        for number, group in enumerate(manifest.groups):
            source = spec.sources[number] if number < len(spec.sources) else ""
            async for index, seen in seen_in(store, group, verify=spec.verify, fresh=fresh):
                found.add(number, index, seen, group.outputs, source)
                if len(found.page) >= PAGE:
                    if not found.states["unreadable"]:
                        await pages.add(found.page)
                    found.page = []
        if found.verdict == "unknown":
            return _told(found, spec, at_ms=at_ms, attempt=attempt, by=by)
        await pages.add(found.page)
        told = _told(found, spec, at_ms=at_ms, attempt=attempt, by=by, listed=name if pages.many else "")
        # the audit trail of a batch that is final takes no more notes, so each validation has a record of its own
        await store.blobs.write(f"{name}{_RECORD}", msgspec.json.encode(msgspec.structs.replace(told, first=())))
    except StoreError as error:
        return away(spec, error, at_ms=at_ms, attempt=attempt, by=by)
    return told


async def history(store: OutputStore, job_id: str) -> list[Validation]:
    """The last validations of a batch, oldest first. Raises the `StoreError` of a storage that is away."""
    folder = f"{VALIDATIONS}/{job_id}"
    (files,) = await store.blobs.find([folder])
    if isinstance(files, StoreError):
        raise files
    names = sorted(name for name in files if name.endswith(_RECORD))[-_REMEMBERED:]
    found = []
    for body in await store.blobs.read([f"{folder}/{name}" for name in names]):
        if isinstance(body, StoreError):
            raise body
        with contextlib.suppress(msgspec.DecodeError):  # damaged, or written by another version
            found.append(msgspec.json.decode(body or b"", type=Validation))
    return sorted(found, key=lambda one: one.at_ms)


class _Pages:
    """The list of what is lacking, written down while it is found: it may be long."""

    def __init__(self, store: OutputStore, first: str) -> None:
        self._store = store
        self.first = first
        self.many = 0

    async def add(self, lacking: Sequence[OutputDefect]) -> None:
        if lacking:
            lines = b"\n".join(msgspec.json.encode(one) for one in lacking)
            await self._store.blobs.write(_page_path(self.first, self.many), gzip.compress(lines, mtime=0))
            self.many += 1


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


async def listed(store: OutputStore, validation: Validation, *, page: int = 0) -> list[OutputDefect]:
    """A page of what a validation found lacking; empty after the last."""
    if not validation.listed:
        return []
    (body,) = await store.blobs.read([_page_path(validation.listed, page)])
    if isinstance(body, StoreError):
        raise body
    if body is None:
        return []
    lines = (await asyncio.to_thread(gzip.decompress, body)).splitlines()
    return [msgspec.json.decode(line, type=OutputDefect) for line in lines]


def result_of(validation: Validation, sealer: Sealer) -> bytes:
    """The result of a batch: what its last validation came to."""
    return sealer.seal(msgspec.msgpack.encode(msgspec.to_builtins(validation)))


def validation_of(job: Job, sealer: Sealer) -> Validation | None:
    """What the last validation of a job came to, if there was one."""
    if job.result is None:
        return None
    try:
        return msgspec.msgpack.decode(sealer.open(job.result, field="result"), type=Validation)
    except msgspec.DecodeError as error:
        raise InvalidInput("job", f"{job.id}: what its last validation found cannot be read: {error}") from None


async def settle(
    control: Control, job_id: str, validation: Validation, sealer: Sealer, *, actor: str, version: int | None = None
) -> Job:
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
            last = validation_of(row, sealer)
            if last is not None and last.at_ms > validation.at_ms:
                return ()  # somebody looked later, and was quicker
            if validation.verdict == "succeeded":
                return (Move(to="succeeded", reason=told, details=details, fields=fields),)
            return (msgspec.structs.replace(note, fields={**fields, "reason": told}),)
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
    """For the audit trail: counts, not lists."""
    return {
        name: value
        for name, value in msgspec.to_builtins(validation).items()
        if name not in ("first", "why") and value not in (0, "")
    }


def _told(found: OutputTally, spec: Spec, *, at_ms: int, attempt: int, by: str, listed: str = "") -> Validation:
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
        other_code=found.other_code,
        first=tuple(found.first),
        listed=listed,
        why=found.why[:500],
    )


def _page_path(first: str, number: int) -> str:
    return f"{first}-{number:05d}.ndjson.gz"
