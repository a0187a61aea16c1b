"""What all virtual users of a workflow in one process share: looked-up addresses, TLS contexts, limits, and the count
of calls."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from ...errors import CallFailed, InvalidInput

T = TypeVar("T")


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Limits of one call by phase, in seconds: `get(url, timeout=Timeouts(connect=2, total=10))`. None: no limit.

    >>> Timeouts(connect=2).read
    30.0
    """

    connect: float | None = 10.0
    """to open a connection, TLS included"""
    write: float | None = 10.0
    """to hand over the request"""
    read: float | None = 30.0
    """between two pieces of the answer, and until the first"""
    total: float | None = 60.0
    """for the whole call, redirects included"""

    def __post_init__(self) -> None:
        for phase in self.__struct_fields__:
            limit = getattr(self, phase)
            if limit is not None and not (isinstance(limit, int | float) and limit > 0):
                raise InvalidInput(
                    f"timeout.{phase}", f"{limit!r} is not a number of seconds above 0; None means no limit"
                )

    @functools.cached_property
    def shortest(self) -> float:
        """Of those of a call that has its connection: before that, none can have passed."""
        return min(math.inf if limit is None else limit for limit in (self.write, self.read, self.total))


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """How the other side is verified, and how we show who we are."""

    verify: bool = True
    ca: str | None = None
    """file of certificates to trust instead of the system's"""
    cert: str | None = None
    """file with our certificate, for mutual TLS"""
    key: str | None = None
    """file with its key, if that is not in the same file"""


class Address(NamedTuple):
    """Where a host and port are."""

    family: int
    sockaddr: tuple[Any, ...] | str
    """a path, for a unix socket"""


Lookup = Callable[[str, int, int], Awaitable[list[Address]]]


async def system_lookup(host: str, port: int, kind: int) -> list[Address]:
    """Ask the system."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=kind)
    return [Address(family, address) for family, _, _, _, address in found]


@functools.cache
def is_address(host: str) -> bool:
    """Whether a host is an address already, and not a name.

    >>> is_address("127.0.0.1"), is_address("::1"), is_address("localhost")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host) is not None and "%" not in host
    except ValueError:
        return False


class Network:
    """One per workflow in each process."""

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        tls: Tls | None = None,
        proxy: str | None = None,
        lookup: Lookup = system_lookup,
    ) -> None:
        self.timeouts = timeouts or Timeouts()
        self.tls = tls or Tls()
        if self.tls != Tls():
            self.tls_context()  # what cannot be used is refused now, also if no call would need it
        self.proxy = proxy
        """http://[user:password@]host:port, for all calls"""
        self.sent = 0
        self.answered = 0
        self.aborted = 0
        self.aborted_sent = 0
        """bytes of calls that were aborted"""
        self.aborted_received = 0
        self.resent = 0
        """calls that were sent again, because the server had closed or refused them before it answered"""
        self.unexpected = 0
        """messages that were discarded, because they came when no call waited for one"""
        self._lookup = lookup
        self._addresses: dict[tuple[str, int, int], list[Address]] = {}
        self._asking: dict[tuple[str, int, int], asyncio.Future[list[Address]]] = {}
        self._kept: dict[Any, Any] = {}

    def abort(self, sent: int, received: int) -> None:
        """A call was given up while it was under way, after these bytes."""
        self.aborted += 1
        self.aborted_sent += sent
        self.aborted_received += received

    async def resolve(self, host: str, port: int, kind: int = socket.SOCK_STREAM) -> Address:
        """Where it is; asked once per host and port, and remembered for the whole run."""
        return (await self.addresses(host, port, kind))[0]

    async def addresses(self, host: str, port: int, kind: int = socket.SOCK_STREAM) -> list[Address]:
        """All places where it is, the one to try first in front. Whoever finds that another answers moves it there."""
        key = (host, port, kind)
        known = self._addresses.get(key)
        if known is not None:
            return known
        if is_address(host):
            # there is nothing to look up, and asking the system takes a thread
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            place = (host, port, 0, 0) if family == socket.AF_INET6 else (host, port)
            return self._addresses.setdefault(key, [Address(family, place)])
        # a thousand users that start at once ask once
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.ensure_future(self._ask(host, port, kind))

            def answered(done: asyncio.Future[list[Address]]) -> None:
                del self._asking[key]
                if not done.cancelled():
                    done.exception()  # for the case that all who asked have given up

            asking.add_done_callback(answered)
        found = await asyncio.shield(asking)
        return self._addresses.setdefault(key, found)

    async def _ask(self, host: str, port: int, kind: int) -> list[Address]:
        try:
            found = await self._lookup(host, port, kind)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CallFailed("dns", f"the host {host} cannot be resolved ({reason}); check its name") from None
        if not found:
            raise CallFailed("dns", f"the host {host} has no address; check its name")
        return found

    def keep(self, make: Callable[[Network], T]) -> T:
        """What a protocol keeps for all its users of this process: made when the first of them asks."""
        kept = self._kept.get(make)
        if kept is None:
            kept = self._kept[make] = make(self)
        return cast("T", kept)

    def tls_context(self, *alpn: str) -> ssl.SSLContext:
        """The context for connections that offer these protocols; made once for each."""
        return _context(self.tls, alpn)


@functools.cache
def _context(tls: Tls, alpn: tuple[str, ...]) -> ssl.SSLContext:
    _check_files(tls)
    try:
        made = ssl.create_default_context(cafile=tls.ca)
    except OSError as error:
        raise InvalidInput("ca", f"{tls.ca} cannot be used ({error.strerror or error})") from None
    if not tls.verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        try:
            made.load_cert_chain(tls.cert, tls.key)
        except OSError as error:
            raise InvalidInput("cert", f"{tls.cert} cannot be used ({error.strerror or error})") from None
    if alpn:
        made.set_alpn_protocols(list(alpn))
    return made


def _check_files(tls: Tls) -> None:
    """What OpenSSL says of a file that is not there does not name it."""
    if tls.key is not None and tls.cert is None:
        raise InvalidInput("key", "is that of a certificate; name its file with --cert, too")
    for field, path in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)):
        try:
            if path is not None:
                Path(path).open("rb").close()
        except OSError as error:
            raise InvalidInput(field, f"{path} cannot be read ({error.strerror or error})") from None
