"""Private Redis and PostgreSQL servers on free ports, in a folder of the run, stopped at its end.

Redis keeps nothing on disk, which is the fastest it can be. PostgreSQL has its defaults: every commit is synced.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

_PACKAGES = {"redis": "redis-server", "postgresql": "postgresql"}
_START_S = 30


class ServerMissing(Exception):
    """The server's programs are not on this machine and could not be installed."""


class Server(Protocol):
    """A running server that gives each system a database of its own."""

    version: str

    def database(self, name: str) -> str:
        """The URL of a new, empty database."""

    def stop(self) -> None: ...


class Redis:
    """One server; databases are its numbered ones."""

    def __init__(self, folder: Path) -> None:
        program = _program("redis", "redis-server")
        self.version = _output(program, "--version").split("v=")[1].split()[0]
        self._port = _free_port()
        self._taken = 0
        options = ["--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(folder), "--databases", "64"]
        options += ["--save", "", "--appendonly", "no"]
        self._process = _started([program, *options], folder / "redis.log", self._answers)

    def database(self, name: str) -> str:  # noqa: ARG002  # Redis only has numbers
        self._taken += 1
        return f"redis://127.0.0.1:{self._port}/{self._taken}"

    def stop(self) -> None:
        _stop(self._process, signal.SIGTERM)

    def _answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self._port), 1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")


class Postgres:
    """One cluster, made by initdb; it refuses to run as root, so another user runs it then."""

    def __init__(self, folder: Path) -> None:
        self._postgres, initdb, self._createdb = (
            _program("postgresql", name) for name in ("postgres", "initdb", "createdb")
        )
        self.version = _output(self._postgres, "--version").split()[2]
        self._port = _free_port()
        self._user = _unprivileged() if os.geteuid() == 0 else None
        data = folder / "postgresql"
        data.mkdir()
        if self._user is not None:
            shutil.chown(data, self._user)
        made = [initdb, "-D", str(data / "data"), "-A", "trust", "-U", "bench"]
        subprocess.run(made, user=self._user, cwd=data, check=True, capture_output=True)
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={data}"]
        command = [self._postgres, "-D", str(data / "data"), "-p", str(self._port), *options]
        self._process = _started(command, folder / "postgresql.log", self._answers, user=self._user, cwd=data)

    def database(self, name: str) -> str:
        subprocess.run([*self._as_client(self._createdb), name], check=True, capture_output=True)
        return f"postgresql://bench@127.0.0.1:{self._port}/{name}"

    def stop(self) -> None:
        _stop(self._process, signal.SIGINT)

    def _answers(self) -> bool:
        ready = self._as_client(str(Path(self._createdb).with_name("pg_isready")))
        return subprocess.run(ready, check=False, capture_output=True).returncode == 0

    def _as_client(self, program: str) -> list[str]:
        return [program, "-h", "127.0.0.1", "-p", str(self._port), "-U", "bench"]


SERVERS: dict[str, Callable[[Path], Server]] = {"redis": Redis, "postgresql": Postgres}


def _program(server: str, name: str) -> str:
    """Its path, after installing the package if that is possible."""
    if (found := _found(name)) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        # runlevel 1 keeps the package from starting a server of its own
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        install = ["apt-get", "install", "-y", "--no-install-recommends", _PACKAGES[server]]
        subprocess.run(install, env=environment, check=False, capture_output=True)
        found = _found(name)
    if found is None:
        raise ServerMissing(f"`{name}` is not on this machine; install the package `{_PACKAGES[server]}`")
    return found


def _found(name: str) -> str | None:
    # Debian keeps the server programs of PostgreSQL off the PATH
    debian = sorted(Path("/usr/lib/postgresql").glob("[0-9]*/bin"), key=lambda bin_: float(bin_.parent.name))
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, reversed(debian))]))


def _unprivileged() -> str:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise ServerMissing("PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody`")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _started(
    command: list[str],
    log: Path,
    answers: Callable[[], bool],
    *,
    user: str | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        # a session of its own: Ctrl-C reaches the driver, which stops the server when it is done with it
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, user=user, cwd=cwd, start_new_session=True
        )
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if answers():
                return process
        except OSError:
            pass
        time.sleep(0.05)
    _stop(process, signal.SIGKILL)
    raise RuntimeError(f"{command[0]} did not start:\n{log.read_text()}")


def _stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
