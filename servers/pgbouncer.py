"""A PgBouncer in transaction mode in front of a PostgreSQL server."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from .postgres import OWNER, Postgres
from .programs import program, unprivileged, version
from .server import Process, free_port, own_folder


class PgBouncer:
    """Every transaction may run on another connection of the server, as users of a pooler have it."""

    def __init__(self, folder: Path, postgres: Postgres, *, pool_size: int = 5) -> None:
        path = program("pgbouncer", "pgbouncer")
        self.version = version(path).split()[1]
        self.port = free_port()
        user = unprivileged() if os.geteuid() == 0 else None
        own = own_folder(folder, "pgbouncer", user)
        config = own / "pgbouncer.ini"
        config.write_text(
            "[databases]\n"
            f"* = host=127.0.0.1 port={postgres.port} user={OWNER}\n"
            "[pgbouncer]\n"
            "listen_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\n"
            "unix_socket_dir =\n"
            "auth_type = any\n"
            "pool_mode = transaction\n"
            f"default_pool_size = {pool_size}\n"
            "max_client_conn = 500\n"
        )
        log = folder / "pgbouncer.log"
        # SIGTERM is its immediate end; SIGINT would wait for clients
        self._process = Process([path, str(config)], log, self.answers, ends_on=signal.SIGTERM, user=user, cwd=own)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{OWNER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        self._process.stop()

    def answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 1):
            return True
