"""Server-sent events: a stream of small messages over one call."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Awaitable
from types import TracebackType
from typing import Self

from ....errors import CallFailed
from ....event_stream import EventParser, ServerSentEvent
from .response import HTTPResponse


class Events:
    """The events of one call: `async with http.sse(url) as events: async for event in events: ...`

    Leaving the block closes the connection, unless the server has ended the stream. Return `result` from the step: it
    covers the call up to the end of the stream, or to where it was left.
    """

    def __init__(self, call: Awaitable[HTTPResponse]) -> None:
        self._call = call
        self._response: HTTPResponse | None = None

    @property
    def result(self) -> HTTPResponse:
        if self._response is None:
            raise CallFailed("protocol", "the stream has not begun; enter it with `async with` first")
        return self._response

    async def __aenter__(self) -> Self:
        self._response = response = await self._call
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.ok and kind != "text/event-stream":
            response.leave()
            raise CallFailed(
                "protocol", f"{response.url} sends {kind or 'no content type'} instead of text/event-stream"
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.result.leave()

    async def __aiter__(self) -> AsyncIterator[ServerSentEvent]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        parser = EventParser()
        chunks = self.result.chunks()
        try:
            async for chunk in chunks:
                for event in parser.feed(decoder.decode(chunk)):
                    yield event
        finally:
            await chunks.aclose()
