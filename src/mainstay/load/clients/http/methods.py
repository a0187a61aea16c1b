"""The calls that the clients of HTTP/1.1 and HTTP/2 have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any, Generic, TypeVar, Unpack

from ....errors import InvalidInput
from ...prepared import URL
from ..network import Network
from .cookies import Jar
from .encoder import Encoder
from .options import CallOptions, events_options
from .response import HTTPResponse
from .sse import Events

CallT = TypeVar("CallT", bound=Awaitable[HTTPResponse])


class HTTPMethods(ABC, Generic[CallT]):
    """The methods of a client, and the state of its user: cookies and the prefix of URLs."""

    __slots__ = ("_encoder", "_network")

    def __init__(self, network: Network, encoder: Encoder) -> None:
        self._network = network
        self._encoder = encoder

    @abstractmethod
    def _launch(self, method: str, url: URL | str, options: CallOptions | dict[str, Any]) -> CallT:
        """The call, to be awaited."""

    @property
    def cookies(self) -> Jar:
        """The cookies that servers have set."""
        return self._encoder.cookies

    @property
    def base_url(self) -> str:
        return self._encoder.base_url

    @base_url.setter
    def base_url(self, value: str) -> None:
        self._encoder.base_url = value
        self._encoder.ready.clear()

    def get(self, url: URL | str, **options: Unpack[CallOptions]) -> CallT:
        return self._launch("GET", url, options)

    def post(self, url: URL | str, **options: Unpack[CallOptions]) -> CallT:
        return self._launch("POST", url, options)

    def put(self, url: URL | str, **options: Unpack[CallOptions]) -> CallT:
        return self._launch("PUT", url, options)

    def patch(self, url: URL | str, **options: Unpack[CallOptions]) -> CallT:
        return self._launch("PATCH", url, options)

    def delete(self, url: URL | str, **options: Unpack[CallOptions]) -> CallT:
        return self._launch("DELETE", url, options)

    def head(self, url: URL | str, **options: Unpack[CallOptions]) -> CallT:
        return self._launch("HEAD", url, options)

    def options(self, url: URL | str, **options: Unpack[CallOptions]) -> CallT:
        return self._launch("OPTIONS", url, options)

    def request(self, method: str, url: URL | str, **options: Unpack[CallOptions]) -> CallT:
        """Any method."""
        if not method.isascii() or not method.replace("-", "").isalnum():
            raise InvalidInput("method", f"{method!r} is not a method; write GET, POST or the like")
        return self._launch(method.upper(), url, options)

    def sse(self, url: URL | str, **options: Unpack[CallOptions]) -> Events:
        """Server-sent events: `async with self.client.http.sse(url) as events: async for event in events: ...`

        Return `events.result` from the step. The whole call has no limit unless `timeout` says so.
        """
        return Events(self._launch("GET", url, events_options(options, self._network.timeouts)))
