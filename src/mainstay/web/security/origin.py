"""Which page a request comes from, and which server it means to speak to.

A browser runs the pages of strangers, and lets them send requests to any server that it can reach: to one on this
machine, too. What it does not let them choose are three headers: `Host`, `Origin` and `Sec-Fetch-Site`.
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
    """Whether a name or address can only mean this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "0.0.0.0", "db.example")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_host(headers: Headers) -> None:
    """Of a server that asks nobody for a token: whoever speaks to it has to know that it is on this machine.

    A stranger's page can have its own name point to 127.0.0.1 (DNS rebinding); to the browser it is then one site with
    this server, and may read all that it answers. But the browser still says the stranger's name as the host.
    """
    hosts = headers.getlist("host")
    host = place_of(hosts[0], "http") if len(hosts) == 1 else None
    if host is None or not is_loopback(host[0]):
        raise Problem(
            403,
            "wrong_host",
            "this server lets everybody on this machine in, so it has to be called by a name of this machine: "
            "use http://127.0.0.1 or http://localhost. For other names, start it with --tokens",
        )


def check_origin(method: str, scheme: str, headers: Headers) -> None:
    """Refuse what a page of another site has a browser send. Programs that are no browsers say neither header.

    `Sec-Fetch-Site` decides where there is one: it is right also behind a proxy that changes the host. Older browsers,
    and all of them towards a server without TLS on another machine, say only the origin.
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
    # the scheme of the page, not ours: somebody in front of this server may do TLS for it
    theirs = _scheme_and_place(origin)
    if theirs is None or theirs[0] not in _PORTS or theirs[1] != place_of(headers.get("host", ""), theirs[0]):
        raise _cross_site()
    if scheme == "https" and theirs[0] != "https":
        raise _cross_site()


def _scheme_and_place(origin: str) -> tuple[str, tuple[str, int] | None] | None:
    """Scheme and place of an origin.

    >>> _scheme_and_place("https://ci.example"), _scheme_and_place("null")
    (('https', ('ci.example', 443)), None)
    """
    scheme, slashes, rest = origin.partition("://")
    if not slashes:
        return None
    place = place_of(rest, scheme)
    return None if place is None else (scheme, place)


def place_of(host: str, scheme: str) -> tuple[str, int] | None:
    """Name and port that a `Host` header says; None if it is none.

    >>> place_of("LOCALHOST:8330", "http"), place_of("[::1]", "https"), place_of("a@b", "http")
    (('localhost', 8330), ('::1', 443), None)
    """
    found = _HOST.fullmatch(host)
    if found is None:
        return None
    port = int(found["port"]) if found["port"] else _PORTS.get(scheme, 0)
    return None if port > _LAST_PORT else (found["name"].strip("[]").lower(), port)


def _cross_site() -> Problem:
    return Problem(
        403,
        "cross_site",
        "the request comes from a page of another site; changes are made from the dashboard's own pages, "
        "or by programs that show a token. A proxy in front of this server has to pass the Host header on",
    )


__all__ = ["SAFE_METHODS", "check_host", "check_origin", "is_loopback", "place_of"]
