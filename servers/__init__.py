"""Private servers for tests and benchmarks: on free ports, in a folder of their own, gone with whoever started them.

Start from `Redis`, `Postgres` and `PgBouncer`, or from what stands in for a cloud: `Moto` (S3 and DynamoDB), `Azurite`
(Azure Blob), `Gcs` (Google Cloud Storage); `Nats` is the real one. `Nginx` is what load is put on. `Proxy` stands
between a client and one of them and spoils the wire. `installed(...)` says whether a server's programs are here.
"""

from collections.abc import Callable
from pathlib import Path

from .azurite import Azurite
from .gcs import Gcs
from .moto import Moto
from .nats import Nats
from .nginx import Nginx
from .pgbouncer import PgBouncer
from .postgres import Postgres
from .programs import ServerMissing, installed
from .proxy import Proxy
from .redis import Redis
from .server import Server, folder

__all__ = [
    "SERVERS",
    "Azurite",
    "Gcs",
    "Moto",
    "Nats",
    "Nginx",
    "PgBouncer",
    "Postgres",
    "Proxy",
    "Redis",
    "Server",
    "ServerMissing",
    "folder",
    "installed",
]

SERVERS: dict[str, Callable[[Path], Server]] = {"redis": Redis, "postgresql": Postgres}
