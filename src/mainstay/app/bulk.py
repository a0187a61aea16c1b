"""Submitting many: any iterable, a chunk at a time, each chunk all or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from ..control import InsertResult
from ..control.chunks import move_index, note_stored
from ..control.options import check_count
from ..control.transactional import Enqueuer
from ..errors import InvalidInput, MainstayError
from ..stores.postgres.enqueue import Steps
from ..task import Call, Client, Handle
from ..task.transactional import Transaction

R = TypeVar("R")

#: told how many are stored so far
Progress = Callable[[int], object]

#: adds to an error what became of so many jobs before it
Note = Callable[[MainstayError, int], None]


async def submit_many(
    client: Client,
    calls: Iterable[Call[R]] | AsyncIterable[Call[R]],
    *,
    chunk: int,
    progress: Progress | None,
    connection: Any = None,
) -> list[Handle[R]]:
    """Submit in chunks; what was stored before one that is refused stays stored, and the error says how many."""
    check_count(chunk, field="chunk", least=1)
    made = _Made(client, progress, note_stored if connection is None else _note_transaction)
    if connection is None:
        control = await client.open()
        async for part in _chunks(calls, chunk):
            with made.adding(part):
                made.of(part, await control.jobs.submit_many([call.ready() for call in part]))
        return made.handles
    transaction = Transaction(client, connection)
    async for part in _chunks(calls, chunk):
        with made.adding(part):
            made.of(part, await transaction.take(_submitting(part)))
    return made.handles


def submit_many_within(
    client: Client, calls: Iterable[Call[R]], *, chunk: int, progress: Progress | None, connection: Any
) -> list[Handle[R]]:
    """The same within a transaction, for code without a loop."""
    check_count(chunk, field="chunk", least=1)
    made = _Made(client, progress, _note_transaction)
    transaction = Transaction(client, connection)
    for part in _plain_chunks(calls, chunk):
        with made.adding(part):
            made.of(part, transaction.take_sync(_submitting(part), what="submit_many_sync"))
    return made.handles


def _submitting(part: list[Call[R]]) -> Callable[[Enqueuer], Steps[list[InsertResult]]]:
    """What submits a chunk within a transaction."""
    requests = [call.ready() for call in part]
    return lambda enqueuer: enqueuer.submit_many(requests)


class _Made:
    """What is stored so far."""

    def __init__(self, client: Client, progress: Progress | None, note: Note) -> None:
        self.handles: list[Handle[Any]] = []
        self._client = client
        self._progress = progress
        self._note = note

    @contextmanager
    def adding(self, part: list[Call[Any]]) -> Iterator[None]:
        try:
            for call in part:
                check_call(self._client, call)
            yield
        except MainstayError as error:
            move_index(error, len(self.handles))
            self._note(error, len(self.handles))
            raise
        if self._progress is not None:
            self._progress(len(self.handles))

    def of(self, part: list[Call[Any]], stored: list[InsertResult]) -> None:
        self.handles += [Handle.of(self._client, call.returns, each) for call, each in zip(part, stored, strict=True)]


def _note_transaction(error: MainstayError, n: int) -> None:
    if n:
        error.add_note(f"the {n} jobs before this chunk are part of your transaction; roll it back, or submit the rest")


def check_call(client: Client, call: object) -> None:
    """Refuse what is not a call, or belongs to another app, whose worker would not look here."""
    if not isinstance(call, Call):
        raise InvalidInput("jobs", f"{call!r} is not a job to submit; write task.job(...)")
    if call.client is not client:
        raise InvalidInput("jobs", f"{call!r} belongs to another app; submit it there")


async def _chunks(calls: Iterable[Call[R]] | AsyncIterable[Call[R]], size: int) -> AsyncIterator[list[Call[R]]]:
    if isinstance(calls, AsyncIterable):
        part = []
        async for call in calls:
            part.append(call)
            if len(part) == size:
                yield part
                part = []
        if part:
            yield part
        return
    for part in _plain_chunks(calls, size):
        yield part


def _plain_chunks(calls: Iterable[Call[R]], size: int) -> Generator[list[Call[R]], None, None]:
    if not isinstance(calls, Iterable):
        raise InvalidInput("jobs", f"{calls!r} is not a list of jobs; write [task.job(...), ...]")
    rest = iter(calls)
    while part := list(islice(rest, size)):
        yield part
