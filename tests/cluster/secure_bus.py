"""A real nats-server with the configuration of `mainstay cluster certs`, and the certificates of a small cluster."""

from __future__ import annotations

from pathlib import Path

from mainstay.bus import Bus
from mainstay.cluster.address import parse_address
from mainstay.cluster.certs import CertificateFiles, issue, make_authority, write_server_config
from servers.nats import NatsCore
from servers.server import free_port


class SecureBus:
    """An authority, a server with TLS, and certificates for two nodes, two managers and an operator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "certs"
        make_authority(self.folder, cluster="shop")
        self.port = free_port()
        issue(self.folder, "server", "bus", hosts=["127.0.0.1"])
        self.files = {
            name: issue(self.folder, role, name)
            for role, name in (
                ("node", "n1"),
                ("node", "n2"),
                ("manager", "m1"),
                ("manager", "m2"),
                ("operator", "ann"),
            )
        }
        config = write_server_config(self.folder, listen=f"127.0.0.1:{self.port}", server="bus").read_text()
        place = folder / "server"
        place.mkdir()
        self.server = NatsCore(place, config.replace("{", "{{").replace("}", "}}"), port=self.port)

    def reload(self, config: str) -> None:
        """Have the server read another configuration, as after SIGHUP."""
        (self.folder.parent / "server" / "nats.conf").write_text(config)
        self.server.reload()

    async def connect(self, files: CertificateFiles, *, timeout_s: float = 5.0) -> Bus:
        address = parse_address(files.url(f"127.0.0.1:{self.port}"))
        identity = files.identity
        return await address.connect(identity.role, identity.name, timeout_s=timeout_s)
