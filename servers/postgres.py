"""A PostgreSQL server. As it is, it has PostgreSQL's defaults: every commit is synced."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from .programs import program, unprivileged, version
from .server import OneProcess, Process, free_port, own_folder

#: nothing is synced: for tests that do not ask what a crash of the server leaves
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
OWNER = "owner"


class Postgres(OneProcess):
    """One cluster, made by initdb; it refuses to run as root, so another user runs it then.

    Settings are those of postgresql.conf: `max_connections="300"`. The port stays the same over `stop`, `kill` and
    `start`. The folder must be one that other users may enter: `servers.folder()`.
    """

    def __init__(self, folder: Path, *, port: int | None = None, **settings: str) -> None:
        server, initdb, self._createdb = (program("postgresql", name) for name in ("postgres", "initdb", "createdb"))
        self.version = version(server).split()[2]
        self.port = port or free_port()
        user = unprivileged() if os.geteuid() == 0 else None
        data = own_folder(folder, "postgresql", user)
        made = [initdb, "-D", str(data / "data"), "-A", "trust", "-U", OWNER, "--no-sync", "-E", "UTF8"]
        subprocess.run(made, user=user, cwd=data, check=True, capture_output=True)
        chosen = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(data), **settings}
        options = [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
        command = [server, "-D", str(data / "data"), "-p", str(self.port), *options]
        log = folder / "postgresql.log"
        # SIGINT: the fast shutdown, which does not wait for clients to leave
        self._process = Process(command, log, self.answers, ends_on=signal.SIGINT, user=user, cwd=data)

    def database(self, name: str) -> str:
        subprocess.run([*self._as_client(self._createdb), name], check=True, capture_output=True)
        return self.url(name)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{OWNER}@127.0.0.1:{self.port}/{database}"

    def answers(self) -> bool:
        ready = self._as_client(str(Path(self._createdb).with_name("pg_isready")))
        return subprocess.run(ready, check=False, capture_output=True).returncode == 0

    def _as_client(self, path: str) -> list[str]:
        return [path, "-h", "127.0.0.1", "-p", str(self.port), "-U", OWNER]
