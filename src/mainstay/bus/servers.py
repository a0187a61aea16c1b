"""The servers of a bus, as one URL names them: `tls://bus-0:4222,bus-1:4222`. Each is a *seed*: one that answers is
enough.

A seed is an address, or a DNS name with any number of addresses, such as a headless service of Kubernetes. Without TLS
all of them have to be on loopback, because a password would cross the network in clear text.

>>> found = parse_servers("nats://node:secret@127.0.0.1:4222,localhost/shop?environment=test")
>>> [seed.text for seed in found.seeds], found.shown, found.url
(['127.0.0.1:4222', 'localhost:4222'], 'nats://127.0.0.1:4222,localhost:4222', \
'nats://node:secret@127.0.0.1:4222,localhost:4222')
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import msgspec

from ..errors import InvalidInput

DEFAULT_PORT = 4222
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SEED = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]@/?#\s]+))(?::(?P<port>\d+))?")
_LARGEST_PORT = 65535


class Seed(msgspec.Struct, frozen=True):
    """A server as the URL names it."""

    host: str
    port: int

    @property
    def text(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"


class BusServers(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a URL that names the servers."""

    secure: bool
    """with TLS"""
    credentials: str = ""
    """USER:PASSWORD, or empty"""
    seeds: tuple[Seed, ...]

    @property
    def url(self) -> str:
        """With its credentials."""
        return self._url(f"{self.credentials}@" if self.credentials else "")

    @property
    def shown(self) -> str:
        """Without its credentials."""
        return self._url("")

    def _url(self, before: str) -> str:
        return f"{self.scheme}://{before}{','.join(seed.text for seed in self.seeds)}"

    @property
    def scheme(self) -> str:
        return "tls" if self.secure else "nats"

    def server_url(self, address: str, port: int) -> str:
        """The URL of one address, with the credentials."""
        before = f"{self.credentials}@" if self.credentials else ""
        return f"{self.scheme}://{before}{bracketed(address)}:{port}"


def parse_servers(url: str, *, field: str = "url", secure: bool | None = None) -> BusServers:
    """The servers of a URL; what follows them is left to the caller. Refuses a URL without TLS to another machine.

    `secure` says whether there are files of TLS; without it the scheme decides.
    """
    scheme, slashes, rest = url.partition("://")
    place = rest[: -len(tail)] if (tail := after_servers(url)) else rest
    if scheme.endswith("+srv"):
        rule = (
            "SRV records are not read; name a host whose A or AAAA records are the servers, such as a headless service"
        )
        raise InvalidInput(field, rule)
    if scheme not in ("nats", "tls") or not slashes:
        raise InvalidInput(field, "it is not the URL of a bus; write tls://HOST:4222, or nats://HOST:4222 on loopback")
    before, _, hosts = place.rpartition("@")
    seeds = [_seed(unquote(text), field) for text in hosts.split(",")]
    if not (scheme == "tls" if secure is None else secure):
        for seed in seeds:
            if seed.host not in LOOPBACK:
                raise InvalidInput(
                    field,
                    f"{seed.host} is another machine, so TLS is required: pass ca, cert and key, "
                    "which mainstay cluster certs makes",
                )
    return BusServers(
        secure=scheme == "tls" if secure is None else secure, credentials=before, seeds=tuple(dict.fromkeys(seeds))
    )


def after_servers(url: str) -> str:
    """What follows the servers in a URL. (`urlsplit` does not read several addresses of IPv6.)

    >>> after_servers("tls://[::1]:4222,[::2]:4222/shop?environment=test")
    '/shop?environment=test'
    """
    rest = url.partition("://")[2]
    found = re.search(r"[/?#]", rest)
    return rest[found.start() :] if found else ""


def _seed(text: str, field: str) -> Seed:
    found = _SEED.fullmatch(text)
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if found is None or not 0 < port <= _LARGEST_PORT:
        raise InvalidInput(field, f"{text!r} is not a server; write HOST or HOST:PORT, with a comma between several")
    return Seed(found["address"] or found["host"], port)


def bracketed(host: str) -> str:
    """A host as a URL has it.

    >>> bracketed("::1"), bracketed("bus.internal")
    ('[::1]', 'bus.internal')
    """
    return f"[{host}]" if ":" in host else host


__all__ = ["BusServers", "Seed", "after_servers", "bracketed", "parse_servers"]
