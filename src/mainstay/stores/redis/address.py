"""The URL of a Redis or Valkey store: the server, the namespace and the timeouts.

    redis://user:password@host:6379/0?prefix=mainstay
    rediss://host/0                      the same over TLS
    redis:///run/redis/redis.sock?db=0   a Unix socket: no host, and a path

`valkey:` and `valkeys:` are other names of `redis:` and `rediss:`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from ...errors import InvalidInput
from ...storage import check_options, duration_of, is_on, number_of, shown_url
from ..durability import Durability, check_durability

TLS_SCHEMES = ("rediss", "valkeys")

_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_OPTIONS = (
    "prefix",
    "pool",
    "connect_timeout",
    "retries",
    "durability",
    "allow_eviction",
    "auto_migrate",
    "db",
    *_TLS_OPTIONS,
)
_PREFIX = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_CERT_REQS = ("required", "none")
_PORT = 6379


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL. Only `shown` may be shown: the rest includes the password."""

    shown: str
    """the URL without its secrets"""
    host: str = "localhost"
    port: int = _PORT
    path: str | None = None
    """of a Unix socket; then host and port are not used"""
    username: str | None = None
    password: str | None = None
    db: int = 0
    tls: bool = False
    tls_options: Mapping[str, Any] = {}
    prefix: str = "mainstay"
    """the namespace: several applications may share a server"""
    pool: int = 8
    """maximum of connections for commands; one more waits for wakes"""
    connect_timeout_s: float = 5.0
    retries: int = 6
    """how often a call is sent again after the connection was lost"""
    durability: Durability | None = None
    """of submits and of ends of jobs; None: as the server is configured"""
    allow_eviction: bool = False
    auto_migrate: bool = False

    def __repr__(self) -> str:
        return f"Address({self.shown!r}, prefix={self.prefix!r})"

    @property
    def tag(self) -> str:
        """The beginning of every key. The braces make it the hash tag: all keys of a namespace share one slot."""
        return f"{{{self.prefix}}}:"


def parse(url: str, options: Mapping[str, str]) -> RedisAddress:
    """Parse a store URL and its options; refuses unknown options.

    >>> parse("redis://:secret@cache:7000/2", {"prefix": "shop"})
    Address('redis://:***@cache:7000/2', prefix='shop')
    """
    check_options(options, _OPTIONS)
    parts = urlsplit(url)
    shown = shown_url(url)
    if parts.fragment:
        raise InvalidInput("store", f"{shown!r}: a # ends a URL; write %23 in a name or a password")
    is_socket = not parts.hostname and not _is_number(parts.path.strip("/"))
    place = _socket(url, shown, options) if is_socket else _network(url, shown, options)
    return RedisAddress(
        shown=shown,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        prefix=_prefix(options.get("prefix", "mainstay")),
        pool=number_of(options, "pool", 8, least=1, most=1000),
        connect_timeout_s=duration_of(options, "connect_timeout", "5s"),
        retries=number_of(options, "retries", 6, least=0, most=1000),
        durability=check_durability(options["durability"]) if "durability" in options else None,
        allow_eviction=is_on(options, "allow_eviction"),
        auto_migrate=is_on(options, "auto_migrate"),
        **place,
    )


def _network(url: str, shown: str, options: Mapping[str, str]) -> dict[str, Any]:
    parts = urlsplit(url)
    try:
        port = parts.port or _PORT
    except ValueError:
        raise InvalidInput("store", f"{shown!r}: the port is a number from 1 to 65535") from None
    tls = parts.scheme in TLS_SCHEMES
    given = parts.path.strip("/")
    if given and "db" in options:
        raise InvalidInput("db", "the database is named twice, in the path of the URL and as an option; name it once")
    if not _is_number(given):
        raise InvalidInput("store", f"{shown!r}: the path has to be the number of a database, like /0")
    for name in _TLS_OPTIONS:
        if name in options and not tls:
            raise InvalidInput(name, f"{parts.scheme}: URLs are not encrypted; write rediss: for TLS")
    return {
        "host": parts.hostname or "localhost",
        "port": port,
        "db": int(given) if given else number_of(options, "db", 0, least=0, most=1 << 30),
        "tls": tls,
        "tls_options": _tls(options) if tls else {},
    }


def _socket(url: str, shown: str, options: Mapping[str, str]) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme in TLS_SCHEMES or any(name in options for name in _TLS_OPTIONS):
        raise InvalidInput("store", f"{shown!r}: a Unix socket is not encrypted; write redis:// for it")
    return {"path": unquote(parts.path), "db": number_of(options, "db", 0, least=0, most=1 << 30)}


def _tls(options: Mapping[str, str]) -> dict[str, Any]:
    tls: dict[str, Any] = {name: options[name] for name in _TLS_OPTIONS if name in options}
    if (wanted := tls.get("ssl_cert_reqs", "required")) not in _CERT_REQS:
        raise InvalidInput("ssl_cert_reqs", f"{wanted!r} is not one of {', '.join(_CERT_REQS)}")
    # the host name is part of a certificate: it is checked only with the certificate
    tls["ssl_check_hostname"] = wanted == "required" and is_on(options, "ssl_check_hostname", default="on")
    return tls


def _is_number(text: str) -> bool:
    """Whether it is empty or the number of a database."""
    return not text or (text.isascii() and text.isdigit())


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise InvalidInput("prefix", f"{text!r}: a prefix has 1 to 64 of the characters A-Z a-z 0-9 . _ : -")
    return text
