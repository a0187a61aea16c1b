"""A Redis server. As it is, it keeps nothing on disk, which is the fastest it can be."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from .programs import program, version
from .server import OneProcess, Process, free_port

DATABASES = 64


class Redis(OneProcess):
    """One server; databases are its numbered ones.

    Options are those of its configuration, with underscores: `appendonly="yes"`, `appendfsync="always"`,
    `maxmemory_policy="allkeys-lru"`. The port stays the same over `stop`, `kill` and `start`.
    """

    def __init__(self, folder: Path, *, port: int | None = None, **options: str) -> None:
        path = program("redis", "redis-server")
        self.version = version(path).split("v=")[1].split()[0]
        self.port = port or free_port()
        self._taken = 0
        chosen = {"save": "", "appendonly": "no", **options}
        command = [path, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        command += ["--databases", str(DATABASES)]
        for name, value in chosen.items():
            command += [f"--{name.replace('_', '-')}", value]
        self._process = Process(command, folder / "redis.log", self.answers, ends_on=signal.SIGTERM)

    def database(self, name: str) -> str:  # noqa: ARG002  # Redis only has numbers
        self._taken += 1
        return self.url(self._taken)

    def url(self, number: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{number}"

    def answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.sendall(b"PING\r\n")
            # -LOADING while it reads its file
            return connection.recv(16).startswith(b"+PONG")
