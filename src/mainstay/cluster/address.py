"""Where a cluster is, and as whom a program connects to it.

An address is one URL: `nats://USER:PASSWORD@HOST:PORT/CLUSTER?environment=ENV`. With TLS it is `tls://HOST:PORT/CLUSTER`
with `ca`, `cert` and `key`: paths of files. Nodes, operators and managers use the same form.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from ..bus import Bus
from ..bus.nats import connect_nats
from ..errors import InvalidInput
from ..storage import shown_url
from ..stores.remote import check_password

Role = Literal["manager", "node", "operator"]

_DEFAULT_PORT = 4222
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_TLS_FILES = ("ca", "cert", "key")


class ClusterAddress(msgspec.Struct, frozen=True, kw_only=True):
    """One parsed URL of a cluster.

    >>> address = parse_address("nats://node:4nKx7PzQ2vLw9RtY@127.0.0.1:4222/shop")
    >>> address.cluster, address.server, address.shown
    ('shop', 'nats://node:4nKx7PzQ2vLw9RtY@127.0.0.1:4222', 'nats://node:***@127.0.0.1:4222/shop')
    """

    server: str
    """the URL of the bus, with its credentials"""
    cluster: str = "local"
    environment: str = "default"
    files: dict[str, str] = {}
    """ca, cert and key of TLS, by name; empty: no TLS"""

    @property
    def url(self) -> str:
        """The URL that it was parsed from."""
        more = {**({"environment": self.environment} if self.environment != "default" else {}), **self.files}
        return f"{self.server}/{quote(self.cluster)}{'?' + urlencode(more) if more else ''}"

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return shown_url(self.url)

    def tls(self) -> ssl.SSLContext | None:
        """The TLS settings of a client; None: without TLS."""
        if not self.files:
            return None
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.files["ca"])
        context.load_cert_chain(self.files["cert"], self.files["key"])
        return context

    async def connect(self, role: Role, name: str, *, timeout_s: float | None = None, watch: str | None = None) -> Bus:
        """Connect to the bus. Without `timeout_s` it tries until the bus answers."""
        return await connect_nats(
            self.server,
            name=f"{role}.{name}",
            inbox=f"_INBOX.{role}.{name}",
            tls=self.tls(),
            timeout_s=timeout_s,
            watch=watch,
        )

    def store_url(self, role: Role, name: str) -> str:
        """The URL of the store through a manager, for this caller."""
        values = {"cluster": self.cluster, "environment": self.environment, "role": role, "name": name, **self.files}
        return f"remote+{self.server}/?{urlencode(values)}"


def parse_address(url: str) -> ClusterAddress:
    """Parse the URL of a cluster; refuse one that would send a password in clear text to another machine."""
    parts = urlsplit(url)
    if parts.scheme not in ("nats", "tls") or not parts.hostname:
        raise InvalidInput("url", f"{shown_url(url)!r} is not the URL of a cluster; write nats://HOST:4222/NAME")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    files = {name: given.pop(name) for name in _TLS_FILES if name in given}
    environment = given.pop("environment", "default")
    if given:
        raise InvalidInput("url", f"unknown options of a cluster: {', '.join(sorted(given))}")
    if files and len(files) != len(_TLS_FILES):
        missing = ", ".join(name for name in _TLS_FILES if name not in files)
        raise InvalidInput("url", f"TLS needs ca, cert and key; missing: {missing}")
    for name, path in files.items():
        if not Path(path).is_file():
            raise InvalidInput("url", f"{name}: there is no file {path}")
    if not files and parts.hostname not in _LOOPBACK:
        raise InvalidInput(
            "url",
            f"{parts.hostname} is another machine, so TLS is required: pass ca, cert and key, "
            "which mainstay cluster certs makes",
        )
    check_password(url, field="url")
    at = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    server = f"{parts.scheme}://{at}{host}:{parts.port or _DEFAULT_PORT}"
    cluster = parts.path.strip("/") or "local"
    return ClusterAddress(server=server, cluster=cluster, environment=environment, files=files)


__all__ = ["ClusterAddress", "Role", "parse_address"]
