"""A server that stands in for S3 and DynamoDB: moto's, in a process of its own. It keeps everything in memory.

Moto looks at a condition (If-Match) and then writes, with nothing in between that keeps others out. Here requests are
served one at a time, so that a condition holds, as it does on the services themselves.

It honours If-Match and If-None-Match on PUT, and the conditional expressions of DynamoDB. It asks for no credentials.

Run as: python -m servers.moto PORT.
"""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .programs import ServerMissing
from .server import OneProcess, Process, free_port

BUCKET = "registry"
_OPTIONS = "region=us-east-1&access_key_id=test&secret_access_key=test"


class Moto(OneProcess):
    """One server for both services; what it had is gone when it is stopped."""

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        try:
            self.version = version("moto")
            version("flask-cors")
        except PackageNotFoundError as error:
            raise ServerMissing("`moto` is not installed; run: pip install 'moto[server,s3,dynamodb]'") from error
        self.port = port or free_port()
        command = [sys.executable, "-m", "servers.moto", str(self.port)]
        root = Path(__file__).parents[1]
        self._process = Process(command, folder / "moto.log", self.answers, ends_on=signal.SIGTERM, cwd=root)

    def database(self, name: str) -> str:
        return s3_url(self.url(), name)

    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def s3_url(server: str, prefix: str) -> str:
    return f"s3://{BUCKET}/{prefix}?endpoint={server}&allow_http=on&{_OPTIONS}"


def dynamodb_url(server: str, prefix: str) -> str:
    return f"dynamodb://{BUCKET}/{prefix}?endpoint={server}&{_OPTIONS}"


def _one_at_a_time(app: Callable[..., Iterable[bytes]]) -> Callable[..., list[bytes]]:
    turn = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        # all of it is read before the turn: one who stalls while sending keeps nobody else waiting
        if length := int(environ.get("CONTENT_LENGTH") or 0):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with turn:
            return list(app(environ, start_response))

    return serve


def main() -> None:
    from moto.server import (  # noqa: PLC0415  # only this process needs it
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import WSGIRequestHandler, run_simple  # noqa: PLC0415  # as above

    class Quiet(WSGIRequestHandler):
        def log_request(self, *_: object) -> None:
            """Nobody reads them."""

    app = _one_at_a_time(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True, request_handler=Quiet)


if __name__ == "__main__":
    main()
