"""Submitting many: any iterable, a chunk at a time, each chunk all or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from itertools import islice
from typing import TypeVar

from ..control.options import check_count
from ..errors import InvalidInput, MainstayError
from ..task import Call, Client, Handle

R = TypeVar("R")

#: told how many are stored so far
Progress = Callable[[int], object]


async def submit_many(
    client: Client, calls: Iterable[Call[R]] | AsyncIterable[Call[R]], *, chunk: int, progress: Progress | None
) -> list[Handle[R]]:
    """Submit in chunks; what was stored before one that is refused stays stored, and the error says how many."""
    check_count(chunk, field="chunk", least=1)
    control = await client.open()
    handles: list[Handle[R]] = []
    async for part in _chunks(calls, chunk):
        try:
            for call in part:
                check_call(client, call)
            made = await control.submit_many([call.request for call in part])
        except MainstayError as error:
            if handles:
                error.add_note(f"the {len(handles)} jobs before this chunk are stored; submit the rest from there")
            raise
        handles += [
            Handle(client, call.returns, each.id, created=each.created) for call, each in zip(part, made, strict=True)
        ]
        if progress is not None:
            progress(len(handles))
    return handles


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
    if not isinstance(calls, Iterable):
        raise InvalidInput("jobs", f"{calls!r} is not a list of jobs; write [task.job(...), ...]")
    rest = iter(calls)
    while part := list(islice(rest, size)):
        yield part
