"""Submit many jobs from any iterable, in chunks that are stored whole or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from ..control import Enqueuer, InsertResult, check_count, move_index, note_stored
from ..errors import InvalidInput, MainstayError
from ..stores.postgres.enqueue import Steps
from ..task import AppClient, Call, Handle, Transaction

R = TypeVar("R")

#: called with the number of stored jobs
Progress = Callable[[int], object]

#: adds to an error what happened to the jobs before it
Note = Callable[[MainstayError, int], None]


async def submit_many(
    client: AppClient,
    calls: Iterable[Call[R]] | AsyncIterable[Call[R]],
    *,
    chunk: int,
    progress: Progress | None,
    connection: Any = None,
) -> list[Handle[R]]:
    """Submit in chunks. Chunks before a refused one stay stored, and the error says how many jobs that are."""
    check_count(chunk, field="chunk", least=1)
    stored = _Stored(client, progress, note_stored if connection is None else _note_transaction)
    if connection is None:
        control = await client.open()
        async for part in _chunks(calls, chunk):
            with stored.adding(part):
                stored.add(part, await control.jobs.submit_many([call.ready() for call in part]))
        return stored.handles
    transaction = Transaction(client, connection)
    async for part in _chunks(calls, chunk):
        with stored.adding(part):
            stored.add(part, await transaction.take(_submitting(part)))
    return stored.handles


def submit_many_within(
    client: AppClient, calls: Iterable[Call[R]], *, chunk: int, progress: Progress | None, connection: Any
) -> list[Handle[R]]:
    """The same within a transaction, for code without a loop."""
    check_count(chunk, field="chunk", least=1)
    stored = _Stored(client, progress, _note_transaction)
    transaction = Transaction(client, connection)
    for part in _plain_chunks(calls, chunk):
        with stored.adding(part):
            stored.add(part, transaction.take_sync(_submitting(part), what="submit_many_sync"))
    return stored.handles


def _submitting(part: list[Call[R]]) -> Callable[[Enqueuer], Steps[list[InsertResult]]]:
    """A function that submits a chunk within a transaction."""
    requests = [call.ready() for call in part]
    return lambda enqueuer: enqueuer.submit_many(requests)


class _Stored:
    """The jobs that are stored so far."""

    def __init__(self, client: AppClient, progress: Progress | None, note: Note) -> None:
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

    def add(self, part: list[Call[Any]], jobs: list[InsertResult]) -> None:
        self.handles += [Handle.of(self._client, call.returns, each) for call, each in zip(part, jobs, strict=True)]


def _note_transaction(error: MainstayError, n: int) -> None:
    if n:
        error.add_note(f"the {n} jobs before this chunk are part of your transaction; roll it back, or submit the rest")


def check_call(client: AppClient, call: object) -> None:
    """Refuse what is not a call, or a call of another app, whose workers use another store."""
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
