"""A `mainstay serve` of its own process, on a free port, and what it and its store use. Linux only."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import msgspec

from .stands import cpu_s, family, rss_mb

_TICKS = os.sysconf("SC_CLK_TCK")
_STOP_S = 30
_QUIET_S = 60
_REQUESTS = re.compile(r'^mainstay_http_requests_total\{([^}]*)part="api"([^}]*)\} (\S+)$', re.MULTILINE)


class ServeFailed(Exception):
    """The server did not start, or did not answer as it should."""


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """A server that runs."""

    pid: int
    port: int
    store_pid: int | None
    """The first process of the store's server; None where the store is inside of ours."""

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def used(self) -> tuple[float, float | None]:
        """Processor time of the server so far, and of its store's."""
        return cpu_s(self.pid), None if self.store_pid is None else _all_cpu_s(self.store_pid)

    def memory_mb(self) -> float:
        return rss_mb(self.pid) or 0.0

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def answered(self) -> int:
        """Requests of the API, as the server counts them, once none is under way."""
        until_s = time.monotonic() + _QUIET_S
        while "mainstay_http_open_requests 1.0" not in (told := self.get("/metrics").decode()):
            if time.monotonic() > until_s:
                raise ServeFailed(f"some requests were still open after {_QUIET_S} s")
        return sum(int(float(found[3])) for found in _REQUESTS.finditer(told))

    def get(self, path: str) -> bytes:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise ServeFailed(f"GET {path} was answered with {answer.status}: {body[:300]!r}")
        return body


@contextlib.contextmanager
def served(url: str, folder: Path, *, store_pid: int | None = None) -> Iterator[Serving]:
    """One that lets everybody ask as often as they like. It is gone afterwards."""
    command = [sys.executable, "-m", "mainstay", "serve", "--store", url, "--port", "0", "--rate", "0"]
    log = folder / "serve.log"
    with (
        log.open("ab") as file,
        subprocess.Popen(
            [*command, "--json", "--log-level", "warning"], stdout=subprocess.PIPE, stderr=file, start_new_session=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            try:
                port = int(json.loads(said)["url"].rpartition(":")[2])
            except (ValueError, KeyError):
                said += process.stdout.read()
                raise ServeFailed(f"the server did not start: {(said + log.read_bytes()).decode()[-1000:]}") from None
            yield Serving(pid=process.pid, port=port, store_pid=store_pid)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def postgres_pid(folder: Path) -> int:
    """The first process of the PostgreSQL that `servers.Postgres` keeps in a folder."""
    return int((folder / "postgresql" / "data" / "postmaster.pid").read_text().split()[0])


def percentile(values: list[float], at: float) -> float:
    """The least value that so many are not above; 0.0 of none.

    >>> percentile([3.0, 1.0, 2.0, 4.0], 0.5), percentile([7.0], 0.99), percentile([], 0.5)
    (2.0, 7.0, 0.0)
    """
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, -int(-at * len(ordered) // 1) - 1)]


def _all_cpu_s(root: int) -> float:
    """Of all processes below one, those that have ended and been waited for included."""
    fields = Path(f"/proc/{root}/stat").read_text().rpartition(")")[2].split()
    ended_s = (int(fields[13]) + int(fields[14])) / _TICKS
    return ended_s + sum(map(cpu_s, family({root})))
