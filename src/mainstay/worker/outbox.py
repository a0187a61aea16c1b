"""Changes that a worker could not write because the store was away when it had to stop, kept in a file.

Each line is a change as it would have been written, under the token of its worker. A worker whose store is behind a
manager has no key: its changes are kept unsealed, and the store seals them. `mainstay jobs sync` applies it
later, or the supervisor does if the store is back before it exits. The store answers as it would have answered the
worker: if another session has the job by then, the change is refused and recorded.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

import msgspec

from ..errors import InvalidInput
from ..model import Leadership
from ..stores import (
    AnyChange,
    Change,
    ChangeResult,
    JobStore,
    SealedChange,
    StoreProxy,
    apply_sealed,
    is_managed,
    shown_url,
)
from ..stores.remote import pack_change, unpack_change
from .state_files import state_folder

_SCHEMA = 1
_PART = "aside"
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class OutboxHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    schema: int = _SCHEMA
    store: str
    """the URL of the store, without secrets"""
    session: str
    at_ms: int
    sealed: bool = True
    """false: each line is an `UnsealedLine`"""


class UnsealedLine(msgspec.Struct, frozen=True):
    """A change that its store seals."""

    change: bytes


class OutboxFile(msgspec.Struct, frozen=True):
    """One file."""

    path: Path
    header: OutboxHeader
    changes: Sequence[AnyChange]


class OutboxResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one kept change."""

    job_id: str
    name: str
    wanted: str
    """the status that its worker wanted to write"""
    outcome: str
    """as in `ChangeResult.outcome`"""
    status: str | None
    """the status of the job now; None: it is deleted"""

    @property
    def fine(self) -> bool:
        """Whether the change of the worker counts."""
        return self.outcome in ("applied", "already_applied")


class Recording(StoreProxy):
    """A store that writes nothing: it records the changes, sealed if this process has the key."""

    def __init__(self, store: JobStore) -> None:
        super().__init__(store)
        self.changes: list[AnyChange] = []
        self._seals = not is_managed(store)

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        del lead
        given = {id(change.before): change for change in changes}

        async def record(sealed: list[SealedChange]) -> list[ChangeResult]:
            self.changes += sealed if self._seals else [given[id(change.before)] for change in sealed]
            return [ChangeResult("applied", change.after) for change in sealed]

        return await apply_sealed(changes, self.chain, record, together=together)


def keep(changes: Sequence[AnyChange], *, store_url: str, session: str, at_ms: int, state: Path | None = None) -> Path:
    """Write a file, complete or not at all, that only this user can read. `state`: see `state_folder`."""
    sealed = all(isinstance(change, SealedChange) for change in changes)
    header = OutboxHeader(store=shown_url(store_url), session=session, at_ms=at_ms, sealed=sealed)
    path = state_folder(_PART, root=state) / f"{_NOT_IN_A_NAME.sub('-', session)}.ndjson"
    _write(path, header, changes)
    return path


def kept_files(store_url: str, *, session: str | None = None, state: Path | None = None) -> list[OutboxFile]:
    """The files kept for a store, of one session or of all."""
    files = (_read(path) for path in sorted(state_folder(_PART, root=state).glob("*.ndjson")))
    url = shown_url(store_url)
    return [file for file in files if file.header.store == url and session in (None, file.header.session)]


async def write_kept(store: JobStore, files: Iterable[OutboxFile]) -> AsyncIterator[OutboxResult]:
    """Apply kept changes, one by one. A file is removed when all its changes are answered. A change in conflict stays
    in it: the job was changed while its worker still has it."""
    for file in files:
        left: list[AnyChange] = []
        for change in file.changes:
            [result] = await store.apply([change])
            if result.outcome == "conflict":
                left.append(change)
            yield OutboxResult(
                job_id=change.before.id,
                name=change.before.name,
                wanted=change.after.status if isinstance(change, SealedChange) else change.moves[-1].to,
                outcome=result.outcome,
                status=None if result.job is None else result.job.status,
            )
        if left:
            _write(file.path, file.header, left)
        else:
            file.path.unlink(missing_ok=True)


def _write(path: Path, header: OutboxHeader, changes: Sequence[AnyChange]) -> None:
    lines = [UnsealedLine(pack_change(each)) if isinstance(each, Change) else each for each in changes]
    new = path.with_suffix(".new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in (header, *lines)))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path) -> OutboxFile:
    try:
        first, *rest = path.read_bytes().splitlines()
        header = msgspec.json.decode(first, type=OutboxHeader)
        if header.schema > _SCHEMA:
            raise InvalidInput("aside", f"{path} was written by a newer Mainstay: use that one for it")
        if header.sealed:
            return OutboxFile(path, header, [msgspec.json.decode(line, type=SealedChange) for line in rest])
        lines = [msgspec.json.decode(line, type=UnsealedLine) for line in rest]
        return OutboxFile(path, header, [unpack_change(line.change) for line in lines])
    except (ValueError, msgspec.MsgspecError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput("aside", f"{path} cannot be read ({error}); move it elsewhere to go on without it") from None
