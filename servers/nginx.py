"""An nginx that load tests are measured against: plain and with TLS, answering at once and writing no log."""

from __future__ import annotations

import resource
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import NamedTuple

from .programs import program
from .server import OneProcess, Process, free_port

SMALL = b"a small file, as an API answers\n" * 4
ANSWER = '{"ok": true, "token": "0123456789abcdef", "items": [1, 2, 3]}'

_CONFIG = """\
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-errors.log;
worker_processes {workers};
worker_rlimit_nofile {files};
events {{
    worker_connections {connections};
}}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    # a file that is in memory already is written with its headers, in one call
    sendfile off;
    tcp_nopush off;
    open_file_cache max=16;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    server {{
        listen 127.0.0.1:{port} backlog=16384;
        listen 127.0.0.1:{tls_port} ssl backlog=16384;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        root {files_folder};
        location = /json {{
            default_type application/json;
            return 200 '{answer}';
        }}
        location = /status {{
            stub_status;
        }}
    }}
}}
"""


class Status(NamedTuple):
    """What a server says of itself."""

    connections: int
    """Open now."""
    requests: int
    """Answered since it was started."""


class Nginx(OneProcess):
    """One server on two ports. `/small.txt` is a file, `/json` answers anything with JSON, `/status` counts.

    The ports stay the same over `stop`, `kill` and `start`.
    """

    def __init__(
        self, folder: Path, *, workers: int = 1, connections: int = 1024, port: int | None = None, tls_port: int = 0
    ) -> None:
        path = program("nginx", "nginx")
        # it tells its version where others tell their errors
        told = subprocess.run([path, "-v"], check=True, capture_output=True, text=True).stderr
        self.version = told.rpartition("/")[2].split()[0]
        self.port, self.tls_port = port or free_port(), tls_port or free_port()
        self.certificate = folder / "nginx.crt"
        """Self-signed, for 127.0.0.1 and localhost: give it to a client as its authority."""
        files = folder / "files"
        files.mkdir(exist_ok=True)
        (files / "small.txt").write_bytes(SMALL)
        key = folder / "nginx.key"
        _certify(self.certificate, key)
        config = folder / "nginx.conf"
        config.write_text(
            _CONFIG.format(
                folder=folder,
                workers=workers,
                connections=connections,
                files=min(2 * connections + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
                port=self.port,
                tls_port=self.tls_port,
                certificate=self.certificate,
                key=key,
                files_folder=files,
                answer=ANSWER,
            )
        )
        # errors before it has read where to write them; -p: nothing of it goes to the system's folders
        command = [path, "-c", str(config), "-p", str(folder), "-e", str(folder / "nginx-errors.log")]
        self._process = Process(command, folder / "nginx.log", self.answers, ends_on=signal.SIGTERM)

    def url(self, path: str = "/small.txt") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def tls_url(self, path: str = "/small.txt") -> str:
        return f"https://127.0.0.1:{self.tls_port}{path}"

    def status(self) -> Status:
        """Of all its workers. The one that asks is in both numbers."""
        with urllib.request.urlopen(self.url("/status"), timeout=10) as answer:
            # "Active connections: 1", "server accepts handled requests" and the three numbers of that
            words = answer.read().split()
        return Status(int(words[2]), int(words[9]))


def _certify(certificate: Path, key: Path) -> None:
    subprocess.run(
        [
            *(program("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "3650", "-subj", "/CN=localhost", "-addext"),
            *("subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
