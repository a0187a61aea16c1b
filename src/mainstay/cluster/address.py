"""Where a cluster is, and as whom a program connects to it.

An address is one URL with one or more servers of the bus: `tls://bus-0:4222,bus-1:4222/CLUSTER` with `ca`, `cert` and
`key`, which are paths of files. The certificate says who connects: its role, name, cluster and environment; what the
URL or an option says about them can only agree with it. On loopback, without TLS, the URL has a password:
`nats://USER:PASSWORD@127.0.0.1:4222/CLUSTER?environment=ENV`.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from ..bus.nats import (
    TLS_FILES,
    BusServers,
    BusTls,
    JoinSettings,
    NatsBus,
    after_servers,
    client_tls,
    connect_nats,
    parse_servers,
)
from ..clock import Clock, SystemClock
from ..errors import InvalidInput
from ..storage import shown_url
from .own_certificate import check_certificate, identity_in
from .permissions import Identity

Role = Literal["manager", "node", "operator"]

#: the name of a caller that has no certificate
UNNAMED = "local"


class ClusterAddress(msgspec.Struct, frozen=True, kw_only=True):
    """One parsed URL of a cluster.

    >>> address = parse_address("nats://node:secret@127.0.0.1:4222,localhost:4223/shop")
    >>> address.cluster, address.shown
    ('shop', 'nats://node:***@127.0.0.1:4222,localhost:4223/shop')
    """

    servers: BusServers
    cluster: str = "local"
    environment: str = "default"
    files: dict[str, str] = {}
    """ca, cert and key of TLS, by name; empty: no TLS"""
    identity: Identity | None = None
    """of the certificate"""

    @property
    def url(self) -> str:
        """The URL that it was parsed from."""
        more = {**({"environment": self.environment} if self.environment != "default" else {}), **self.files}
        return f"{self.servers.url}/{quote(self.cluster)}{'?' + urlencode(more) if more else ''}"

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return shown_url(self.url)

    def tls(self) -> BusTls | None:
        """The TLS settings of a client; None: without TLS."""
        return client_tls(self.files)

    def name(self, role: Role, wanted: str = "", *, default: str = UNNAMED, clock: Clock | None = None) -> str:
        """The name of a caller: that of its certificate, otherwise the wanted one or the default.

        Refuses a certificate of another role or name, one that is not valid now, and one of another authority.
        """
        if self.identity is None:
            return wanted or default
        check_certificate(self.files, self.identity, role=role, name=wanted, clock=clock or SystemClock())
        return self.identity.name

    async def connect(
        self,
        role: Role,
        name: str = "",
        *,
        beside: str = "",
        timeout_s: float | None = None,
        join: JoinSettings | None = None,
    ) -> NatsBus:
        """Connect to the bus. Without `timeout_s` it tries until a server answers.

        `beside` names a second connection of a program: its end does not mean that the program has gone."""
        name = self.name(role, name)
        return await connect_nats(
            self.servers,
            name=f"{role}.{name}{'.' if beside else ''}{beside}",
            inbox=f"_INBOX.{role}.{name}",
            tls=self.tls(),
            timeout_s=timeout_s,
            join=join,
        )

    def store_url(self, role: Role, name: str = "") -> str:
        """The URL of the store through a manager, for this caller."""
        name = self.name(role, name)
        values = {"cluster": self.cluster, "environment": self.environment, "role": role, "name": name, **self.files}
        # in a list of servers, the brackets of an address would not be read as part of a URL
        servers = (
            self.servers.url.replace("[", "%5B").replace("]", "%5D") if "," in self.servers.url else self.servers.url
        )
        return f"remote+{servers}/?{urlencode(values)}"


def parse_address(url: str) -> ClusterAddress:
    """Parse the URL of a cluster; refuse one that would send a password in clear text to another machine, and one that
    names another cluster than its certificate."""
    parts = urlsplit(f"{url.partition('://')[0]}://bus{after_servers(url)}")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    files = {name: given.pop(name) for name in TLS_FILES if name in given}
    environment = given.pop("environment", "")
    if given:
        raise InvalidInput("url", f"unknown options of a cluster: {', '.join(sorted(given))}")
    if files and len(files) != len(TLS_FILES):
        missing = ", ".join(name for name in TLS_FILES if name not in files)
        raise InvalidInput("url", f"TLS needs ca, cert and key; missing: {missing}")
    if parts.scheme == "tls" and not files:
        raise InvalidInput("url", "TLS needs ca, cert and key, which mainstay cluster certs makes")
    servers = parse_servers(url, secure=bool(files))
    cluster = parts.path.strip("/")
    identity: Identity | None = None
    if files:
        client_tls(files)  # names the file that is missing or damaged
        identity = identity_in(files["cert"])
        cluster = _agreed(cluster, identity.cluster, "cluster", files["cert"])
        environment = _agreed(environment, identity.environment, "environment", files["cert"])
    return ClusterAddress(
        servers=servers,
        cluster=cluster or "local",
        environment=environment or "default",
        files=files,
        identity=identity,
    )


def _agreed(given: str, certified: str, field: str, path: str) -> str:
    if given and given != certified:
        rule = f"the URL names the {field} {given!r}, and the certificate {path} is of {certified!r}"
        raise InvalidInput("url", f"{rule}; correct the URL, or use a certificate of that {field}")
    return certified


__all__ = ["UNNAMED", "ClusterAddress", "Role", "parse_address"]
