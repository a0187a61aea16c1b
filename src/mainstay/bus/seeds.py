"""Find a server of the bus that answers, among seeds of which most may be dead.

Names are looked up while addresses are probed. The first server that answers is used; the others are not waited for.
What a name resolves to is remembered for a while, and so is a failure: programs that wait for a bus would otherwise ask
the DNS all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ..clock import duration_text, seconds
from ..errors import InvalidInput
from .refusals import failure_text, is_refusal
from .servers import Seed

PREFIX = "MAINSTAY_CLUSTER_JOIN_"


class JoinSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a program finds the bus, and how long it tries."""

    probes: int = 10
    """addresses that are tried at once"""
    probe_s: float = 0.5
    """how long one of them may take to answer"""
    dns_s: float = 2.0
    """how long the lookup of a name may take; other seeds do not wait for it"""
    dns_cache_s: float = 30.0
    """how long the addresses of a name are remembered, and that it has none"""
    first_wait_s: float = 0.5
    """wait before the second try; it doubles with each try"""
    longest_wait_s: float = 15.0
    jitter: float = 0.25
    """up to this part is added to each wait, so that programs do not come back all at once"""
    command_s: float = 60.0
    """how long a command tries; programs try until a server answers"""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if not getattr(self, field) > 0 and field != "jitter":
                raise InvalidInput(field.removesuffix("_s"), f"{getattr(self, field)} is not above zero")

    @classmethod
    def variables(cls) -> dict[str, str]:
        """The environment variable of each field: `MAINSTAY_CLUSTER_JOIN_PROBE` for `probe_s`."""
        return {field: f"{PREFIX}{field.removesuffix('_s').upper()}" for field in cls.__struct_fields__}

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> JoinSettings:
        """Settings from the environment.

        >>> JoinSettings.from_env({"MAINSTAY_CLUSTER_JOIN_COMMAND": "5s", "MAINSTAY_CLUSTER_JOIN_PROBES": "3"}).probes
        3
        """
        values: dict[str, Any] = {}
        for field, variable in cls.variables().items():
            text = environ.get(variable)
            if text is None:
                continue
            if field.endswith("_s"):
                values[field] = seconds(text, field=variable)
                continue
            try:
                values[field] = int(text) if field == "probes" else float(text)
            except ValueError:
                raise InvalidInput(variable, f"{text!r} is not a number") from None
        return cls(**values)


class SeedEndpoint(msgspec.Struct, frozen=True):
    """An address of a seed."""

    seed: Seed
    address: str

    @property
    def text(self) -> str:
        """For messages: the name, with the address if it is another word."""
        return self.seed.text if self.address == self.seed.host else f"{self.seed.text} ({self.address})"


class SeedNetwork(Protocol):
    """What finding a server needs of the network."""

    async def addresses(self, host: str) -> Sequence[str]:
        """The addresses of a name; raises `OSError`."""
        ...

    async def probe(self, endpoint: SeedEndpoint) -> None:
        """Return if a server of NATS answers there; raises `OSError`."""
        ...


class SystemNetwork:
    """The network of this machine. With TLS a probe is a whole handshake: the server would log a shorter one as an
    error, and so its certificate is checked before anything is sent."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls

    async def addresses(self, host: str) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()

        def give(found: list[str] | None, error: OSError | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(found or [])

        def ask() -> None:
            found, failed = None, None
            try:
                infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
                found = list(dict.fromkeys(str(info[4][0]) for info in infos))
            except OSError as error:
                failed = error
            with contextlib.suppress(RuntimeError):  # the loop has ended in the meantime
                loop.call_soon_threadsafe(give, found, failed)

        # a thread of its own: a lookup can hang for minutes, and the end of the program must not wait for it
        threading.Thread(target=ask, name="mainstay dns", daemon=True).start()
        return await answer

    async def probe(self, endpoint: SeedEndpoint) -> None:
        name = endpoint.seed.host if self._tls is not None else None
        reader, writer = await asyncio.open_connection(
            endpoint.address, endpoint.seed.port, ssl=self._tls, server_hostname=name
        )
        try:
            if not (await reader.read(4)).startswith(b"INFO"):
                raise ConnectionError("something else than a server of NATS answers")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class SeedFinder:
    """Finds servers that answer. It remembers addresses, and why each seed failed."""

    def __init__(
        self,
        seeds: Sequence[Seed],
        *,
        network: SeedNetwork | None = None,
        settings: JoinSettings | None = None,
        rng: random.Random | None = None,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self._seeds = list(seeds)
        self._network = network or SystemNetwork()
        self._settings = settings or JoinSettings()
        self._rng = rng or random.Random()
        self._now_s = now_s
        self._known: dict[str, tuple[float, tuple[str, ...], str]] = {}
        """by name: when it was looked up, its addresses, and why there are none"""
        #: by server, as messages name it: why it was of no use in the newest search
        self.failed: dict[str, str] = {}
        #: how many of them have answered, and refused this client
        self.refusals = 0

    def endpoints(self) -> list[SeedEndpoint]:
        """All addresses that are known."""
        found: list[SeedEndpoint] = []
        for seed in self._seeds:
            if is_address(seed.host):
                found.append(SeedEndpoint(seed, seed.host))
            else:
                found += [SeedEndpoint(seed, address) for address in self._known.get(seed.host, (0.0, (), ""))[1]]
        return found

    async def live(self) -> AsyncGenerator[SeedEndpoint, None]:
        """The servers that answer, the fastest first; then `failed` has the others. Close it when one is enough."""
        self.failed, self.refusals = {}, 0
        found: asyncio.Queue[SeedEndpoint | None] = asyncio.Queue()
        at_once = asyncio.Semaphore(self._settings.probes)
        seeds = self._rng.sample(self._seeds, len(self._seeds))

        async def all_seeds() -> None:
            try:
                await asyncio.gather(*(self._reach(seed, at_once, found) for seed in seeds))
            finally:
                found.put_nowait(None)

        search = asyncio.create_task(all_seeds(), name="mainstay bus seeds")
        try:
            while (endpoint := await found.get()) is not None:
                yield endpoint
            await search
        finally:
            search.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await search

    def refused(self, endpoint: SeedEndpoint, error: Exception) -> None:
        """Remember why a server cannot be used."""
        self.refusals += is_refusal(error)
        self.failed[endpoint.text] = failure_text(error)

    async def _reach(self, seed: Seed, at_once: asyncio.Semaphore, found: asyncio.Queue[SeedEndpoint | None]) -> None:
        addresses, reason = ((seed.host,), "") if is_address(seed.host) else await self._addresses(seed.host)
        if reason:
            self.failed[seed.text] = reason

        async def probe(endpoint: SeedEndpoint) -> None:
            async with at_once:
                with self._noted(endpoint):
                    async with asyncio.timeout(self._settings.probe_s):
                        await self._network.probe(endpoint)
                    found.put_nowait(endpoint)

        await asyncio.gather(*(probe(SeedEndpoint(seed, address)) for address in addresses))

    async def _addresses(self, host: str) -> tuple[tuple[str, ...], str]:
        known = self._known.get(host)
        if known is not None and self._now() - known[0] < self._settings.dns_cache_s:
            return known[1], known[2]
        before = () if known is None else known[1]
        try:
            async with asyncio.timeout(self._settings.dns_s):
                addresses, reason = tuple(await self._network.addresses(host)), ""
            if not addresses:
                reason = "the name has no address"
        except TimeoutError:
            # a DNS that does not answer says nothing about the addresses that it gave before
            addresses, reason = before, f"the DNS did not answer within {duration_text(self._settings.dns_s)}"
        except OSError as error:
            addresses, reason = before, f"the name cannot be looked up ({error.strerror or error})"
        self._known[host] = (self._now(), addresses, reason)
        return addresses, reason

    @contextlib.contextmanager
    def _noted(self, endpoint: SeedEndpoint) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            self.failed[endpoint.text] = f"no answer within {duration_text(self._settings.probe_s)}"
        except OSError as error:
            self.refused(endpoint, error)

    def _now(self) -> float:
        return self._now_s() if self._now_s is not None else asyncio.get_running_loop().time()


def is_address(host: str) -> bool:
    """Whether a host is an address, and needs no DNS.

    >>> is_address("10.0.0.1"), is_address("::1"), is_address("bus.internal")
    (True, True, False)
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def waits(settings: JoinSettings, rng: random.Random) -> Iterator[float]:
    """The waits between tries: 0.5 s, doubled up to 15 s, with jitter.

    >>> [round(wait, 1) for _, wait in zip(range(7), waits(JoinSettings(jitter=0), random.Random(1)))]
    [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    """
    wait_s = settings.first_wait_s
    while True:
        yield wait_s * (1 + settings.jitter * rng.random())
        wait_s = min(settings.longest_wait_s, wait_s * 2)


__all__ = ["JoinSettings", "SeedEndpoint", "SeedFinder", "SeedNetwork", "SystemNetwork", "is_address", "waits"]
