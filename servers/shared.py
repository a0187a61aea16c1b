"""One server of each kind for all processes of a run, started for the first that asks.

The process that drives the run holds a `Host`; it and those it starts ask it, through the environment, for the URL of
a server: `shared("redis")`. Nothing is started for a run that needs none.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from .azurite import Azurite
from .gcs import Gcs
from .moto import Moto
from .nats import Nats
from .postgres import FAST, Postgres
from .programs import ServerMissing
from .redis import Redis
from .server import folder

VARIABLE = "SHARED_SERVERS"

#: without durability: what a crash of a server leaves is asked of servers of a test's own
_STARTERS: dict[str, Callable[[Path], Redis | Postgres | Azurite | Gcs | Moto | Nats]] = {
    "redis": Redis,
    "postgresql": lambda place: Postgres(place, port=None, max_connections="400", **FAST),
    "azurite": Azurite,
    "gcs": Gcs,
    "moto": Moto,
    "nats": Nats,
}


class Answer(msgspec.Struct, omit_defaults=True):
    url: str = ""
    missing: str = ""
    failed: str = ""


def shared(kind: str) -> str:
    """The URL of the run's server of this kind; ServerMissing if it cannot be had."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ[VARIABLE])
        connection.sendall(kind.encode() + b"\n")
        with connection.makefile("rb") as told:
            answer = msgspec.json.decode(told.readline(), type=Answer)
    if answer.missing:
        raise ServerMissing(answer.missing)
    if answer.failed:
        raise RuntimeError(answer.failed)
    return answer.url


class Host:
    """Starts servers for those who ask, one at a time, and stops them all on `close`."""

    def __init__(self) -> None:
        self._up = contextlib.ExitStack()
        self._place = self._up.enter_context(folder("mainstay-servers-"))
        self._answers: dict[str, Answer] = {}
        path = str(self._place / "host")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        os.environ[VARIABLE] = path
        # servers end with the thread that started them: this one lasts until the process ends
        self._thread = threading.Thread(target=self._serve, name="shared servers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._listener.fileno() < 0:
            return
        os.environ.pop(VARIABLE, None)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self._up.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            with connection, contextlib.suppress(OSError), connection.makefile("rb") as asked:
                kind = asked.readline().decode().strip()
                if kind not in self._answers:
                    self._answers[kind] = self._started(kind)
                connection.sendall(msgspec.json.encode(self._answers[kind]) + b"\n")

    def _started(self, kind: str) -> Answer:
        try:
            server = _STARTERS[kind](self._place)
        except ServerMissing as error:
            return Answer(missing=str(error))
        except Exception as error:  # noqa: BLE001  # whoever asked reports it
            return Answer(failed=f"{type(error).__name__}: {error}")
        self._up.callback(server.stop)
        return Answer(url=server.url())
