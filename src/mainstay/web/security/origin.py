"""Checks of the page that a request comes from, and of the host that it is sent to.

A browser lets a page of any site send requests to every server that it can reach, also on this machine. But a page
cannot choose three headers: `Host`, `Origin` and `Sec-Fetch-Site`.
"""

from __future__ import annotations

import ipaddress
import re

from starlette.datastructures import Headers

from ..problems import Problem

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65_535
_HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?")


def is_loopback(host: str) -> bool:
    """Whether a name or address is that of this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "0.0.0.0", "db.example")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_host(headers: Headers) -> None:
    """For a server without tokens: refuse requests that address it by a name of another machine.

    A hostile page can let its own name resolve to 127.0.0.1 (DNS rebinding). For the browser, the page and this server
    are then one site, and the page may read all responses. But the browser still sends the name of that site as the
    host.
    """
    hosts = headers.getlist("host")
    host = host_and_port(hosts[0], "http") if len(hosts) == 1 else None
    if host is None or not is_loopback(host[0]):
        raise Problem(
            403,
            "wrong_host",
            "this server has no tokens, so it answers only under a name of this machine: "
            "use http://127.0.0.1 or http://localhost. For other names, start it with --tokens",
        )


def check_origin(method: str, scheme: str, headers: Headers) -> None:
    """Refuse a request that a page of another site makes a browser send. Other programs send neither header.

    `Sec-Fetch-Site` decides if it is present: it is right also behind a proxy that changes the host. Older browsers,
    and all browsers for a server without TLS on another machine, send only the origin.
    """
    if method in SAFE_METHODS:
        return
    site = headers.get("sec-fetch-site")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise _cross_site()
        return
    origin = headers.get("origin")
    if origin is None:
        return
    # the scheme of the page, not ours: a proxy may do TLS for this server
    page = _scheme_and_host(origin)
    if page is None or page[0] not in _PORTS or page[1] != host_and_port(headers.get("host", ""), page[0]):
        raise _cross_site()
    if scheme == "https" and page[0] != "https":
        raise _cross_site()


def _scheme_and_host(origin: str) -> tuple[str, tuple[str, int] | None] | None:
    """Scheme, host and port of an origin.

    >>> _scheme_and_host("https://ci.example"), _scheme_and_host("null")
    (('https', ('ci.example', 443)), None)
    """
    scheme, slashes, rest = origin.partition("://")
    if not slashes:
        return None
    host = host_and_port(rest, scheme)
    return None if host is None else (scheme, host)


def host_and_port(host: str, scheme: str) -> tuple[str, int] | None:
    """Name and port of a `Host` header; None if it is not valid.

    >>> host_and_port("LOCALHOST:8330", "http"), host_and_port("[::1]", "https"), host_and_port("a@b", "http")
    (('localhost', 8330), ('::1', 443), None)
    """
    match = _HOST.fullmatch(host)
    if match is None:
        return None
    port = int(match["port"]) if match["port"] else _PORTS.get(scheme, 0)
    return None if port > _LAST_PORT else (match["name"].strip("[]").lower(), port)


def _cross_site() -> Problem:
    return Problem(
        403,
        "cross_site",
        "the request comes from a page of another site; changes are made from the dashboard's own pages, "
        "or by programs with a token. A proxy in front of this server must pass the Host header on",
    )


__all__ = ["SAFE_METHODS", "check_host", "check_origin", "host_and_port", "is_loopback"]
