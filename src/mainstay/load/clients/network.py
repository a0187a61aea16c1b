"""State that all virtual users of a workflow in one process share: addresses, TLS contexts, limits, and counts of
calls."""

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
from .send_lease import SendLease

T = TypeVar("T")


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Limits of one call by phase, in seconds: `get(url, timeout=Timeouts(connect=2, total=10))`. None: no limit.

    >>> Timeouts(connect=2).read
    30.0
    """

    connect: float | None = 10.0
    """to open a connection, TLS included"""
    write: float | None = 10.0
    """to write the request"""
    read: float | None = 30.0
    """between two pieces of the response, and until the first"""
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
        """The shortest limit of a call on an open connection."""
        return min(math.inf if limit is None else limit for limit in (self.write, self.read, self.total))


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """How the server is verified, and the client certificate."""

    verify: bool = True
    ca: str | None = None
    """file of certificates to trust instead of the system's"""
    cert: str | None = None
    """file with our certificate, for mutual TLS"""
    key: str | None = None
    """file with its key, if that is not in the same file"""


class Address(NamedTuple):
    """The address of a host and port."""

    family: int
    sockaddr: tuple[Any, ...] | str
    """a path, for a unix socket"""


Lookup = Callable[[str, int, int], Awaitable[list[Address]]]


async def system_lookup(host: str, port: int, kind: int) -> list[Address]:
    """Resolve with the system."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=kind)
    return [Address(family, address) for family, _, _, _, address in addresses]


@functools.cache
def is_address(host: str) -> bool:
    """Whether a host is an IP address, not a name.

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
        lease: SendLease | None = None,
    ) -> None:
        self.timeouts = timeouts or Timeouts()
        self.tls = tls or Tls()
        if self.tls != Tls():
            self.tls_context()  # refuse unusable files now, even if no call needs them
        self.proxy = proxy
        """http://[user:password@]host:port, for all calls"""
        self.lease = lease or SendLease()
        self.sent = 0
        self.answered = 0
        self.aborted = 0
        self.aborted_sent = 0
        """bytes of aborted calls"""
        self.aborted_received = 0
        self.resent = 0
        """calls that were sent again, because the server closed or refused them before it answered"""
        self.unexpected = 0
        """messages that were discarded, because no call waited for one"""
        self._lookup = lookup
        self._addresses: dict[tuple[str, int, int], list[Address]] = {}
        self._asking: dict[tuple[str, int, int], asyncio.Future[list[Address]]] = {}
        self._kept: dict[Any, Any] = {}

    def abort(self, sent: int, received: int) -> None:
        """Count an aborted call, after these bytes."""
        self.aborted += 1
        self.aborted_sent += sent
        self.aborted_received += received

    async def resolve(self, host: str, port: int, kind: int = socket.SOCK_STREAM) -> Address:
        """Its address; resolved once per host and port, and cached for the whole run."""
        return (await self.addresses(host, port, kind))[0]

    async def addresses(self, host: str, port: int, kind: int = socket.SOCK_STREAM) -> list[Address]:
        """All its addresses, the preferred one first. A caller that reaches another one moves it to the front."""
        key = (host, port, kind)
        known = self._addresses.get(key)
        if known is not None:
            return known
        if is_address(host):
            # nothing to resolve, and the system's resolver takes a thread
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            place = (host, port, 0, 0) if family == socket.AF_INET6 else (host, port)
            return self._addresses.setdefault(key, [Address(family, place)])
        # users that start at the same time share one lookup
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.ensure_future(self._ask(host, port, kind))

            def answered(done: asyncio.Future[list[Address]]) -> None:
                del self._asking[key]
                if not done.cancelled():
                    done.exception()  # retrieved, in case all callers are cancelled

            asking.add_done_callback(answered)
        return self._addresses.setdefault(key, await asyncio.shield(asking))

    async def _ask(self, host: str, port: int, kind: int) -> list[Address]:
        try:
            addresses = await self._lookup(host, port, kind)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CallFailed("dns", f"the host {host} cannot be resolved ({reason}); check its name") from None
        if not addresses:
            raise CallFailed("dns", f"the host {host} has no address; check its name")
        return addresses

    def keep(self, make: Callable[[Network], T]) -> T:
        """The state that a protocol shares between all its users, created on first use."""
        kept = self._kept.get(make)
        if kept is None:
            kept = self._kept[make] = make(self)
        return cast("T", kept)

    def tls_context(self, *alpn: str) -> ssl.SSLContext:
        """The TLS context for these protocols (ALPN); created once for each."""
        return _context(self.tls, alpn)


@functools.cache
def _context(tls: Tls, alpn: tuple[str, ...]) -> ssl.SSLContext:
    _check_files(tls)
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except OSError as error:
        raise InvalidInput("ca", f"{tls.ca} cannot be used ({error.strerror or error})") from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        try:
            context.load_cert_chain(tls.cert, tls.key)
        except OSError as error:
            raise InvalidInput("cert", f"{tls.cert} cannot be used ({error.strerror or error})") from None
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def _check_files(tls: Tls) -> None:
    """Check that files can be read: the errors of OpenSSL do not name them."""
    if tls.key is not None and tls.cert is None:
        raise InvalidInput("key", "a key needs its certificate; name the file with --cert")
    for field, path in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)):
        try:
            if path is not None:
                Path(path).open("rb").close()
        except OSError as error:
            raise InvalidInput(field, f"{path} cannot be read ({error.strerror or error})") from None
