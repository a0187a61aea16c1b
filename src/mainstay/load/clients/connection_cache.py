"""The open connections of a virtual user, by origin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ...errors import InvalidInput
from ..prepared import URL, URLParts, joined, split


class CachedConnection(Protocol):
    @property
    def usable(self) -> bool: ...

    def give_up(self) -> None:
        """Close it; a call under way fails, and is counted as aborted."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=CachedConnection)


class ConnectionCache(Generic[ConnectionT]):
    """Lends each connection to one call at a time, the most recently used one first."""

    def __init__(self) -> None:
        self._idle: dict[str, list[ConnectionT]] = {}
        self._all: set[ConnectionT] = set()

    def take(self, origin: str, make: Callable[[], ConnectionT]) -> ConnectionT:
        """A free connection, or a new one, which the call opens. Always give it back."""
        connection = self._free(origin)
        if connection is None:
            connection = make()
            self._all.add(connection)
        return connection

    def give_back(self, origin: str, connection: ConnectionT) -> None:
        if connection.usable:
            self._idle.setdefault(origin, []).append(connection)
        else:
            self._all.discard(connection)

    def add(self, connection: ConnectionT) -> None:
        """Close this connection with the others; it is not lent."""
        self._all.add(connection)

    def drop(self, connection: ConnectionT) -> None:
        self._all.discard(connection)

    def close(self) -> None:
        for connection in tuple(self._all):
            connection.give_up()
        self._all.clear()
        self._idle.clear()

    def _free(self, origin: str) -> ConnectionT | None:
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
            self._all.discard(connection)
        return None


def parts_of(url: URL | str, base_url: str, schemes: tuple[str, ...], what: str) -> URLParts:
    """Split the URL of a call; raises `InvalidInput` for one of another protocol."""
    parts = split(joined(url.whole if isinstance(url, URL) else url, base_url))
    if parts.scheme not in schemes:
        known = " or ".join(f"{scheme}://" for scheme in schemes)
        raise InvalidInput("url", f"{parts.shown!r} is not for {what}; write {known}")
    return parts
