"""The first page of the dashboard and of the jobs, and one far down, with very many jobs in the store; and lists of
some of them, where few match (and those are the oldest) and where many do.

Each is asked for over a kept connection, one after the other, and timed by whoever asks: the server's time, and that of
the socket.
"""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec

from . import web_scale
from .web_server import ServeFailed, Serving, percentile, served

MOST_MS = 100.0
FLAT = 1.5
"""How many times as long as the first page a far one may take."""
PAGE = 50
LIST = f"/api/v1/jobs?limit={PAGE}"
SOME = (
    "queue=rare",
    "queue=rare&status=pending",
    "name=rare.send",
    "queue=queue-3",
    "queue=queue-3&status=failed",
    "name=send&status=pending",
)
"""Filters: of the first three there are few, of the others many."""


class Paged(msgspec.Struct, frozen=True, kw_only=True):
    """One page, asked for many times."""

    store: str
    jobs: int
    path: str
    page: int
    """Which one of its list."""
    first_ms: float
    """When it was asked for the first time."""
    p50_ms: float
    p99_ms: float
    kb: float

    @property
    def soon(self) -> bool:
        return self.p99_ms < MOST_MS

    @property
    def soon_at_first(self) -> bool:
        return self.first_ms < MOST_MS


async def measure(store: str, jobs: int, pages: int, times: int, folder: Path) -> list[Paged]:
    """All of one store, which is made for it."""
    made = {"sqlite": web_scale.sqlite, "postgresql": web_scale.postgres}[store]
    async with made(jobs) as url:
        with served(url, folder) as serving:
            return _all(serving, store, jobs, pages, times)


def flat(first: Paged, far: Paged) -> bool:
    """Whether the far page costs about what the first does."""
    return far.p50_ms <= FLAT * first.p50_ms


def pairs(found: list[Paged]) -> list[tuple[Paged, Paged]]:
    """The first page of each list, with the far one."""
    firsts = {(each.store, each.path): each for each in found if each.page == 1}
    return [(firsts[each.store, each.path], each) for each in found if each.page > 1]


def _all(serving: Serving, store: str, jobs: int, pages: int, times: int) -> list[Paged]:
    connection = HTTPConnection("127.0.0.1", serving.port, timeout=60)
    cold: dict[str, float] = {}

    def took(path: str) -> tuple[float, bytes]:
        began_s = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        ms = (time.perf_counter() - began_s) * 1000
        if answer.status != 200:
            raise ServeFailed(f"GET {path} was answered with {answer.status}: {body[:300]!r}")
        cold.setdefault(path, ms)
        return ms, body

    for path in ("/", "/jobs"):
        took(path)
    page, cursor = 1, json.loads(took(LIST)[1])["next"]
    while page < pages - 1:
        page, cursor = page + 1, json.loads(took(f"{LIST}&cursor={cursor}")[1])["next"]
    for some in SOME:
        _judge(some, json.loads(took(f"{LIST}&{some}")[1]))
    # each with its name, and where it is
    wanted = {
        ("/", 1): "/",
        ("/jobs", 1): "/jobs",
        ("/jobs", pages): f"/jobs?cursor={cursor}",
        (LIST, 1): LIST,
        (LIST, pages): f"{LIST}&cursor={cursor}",
        ("/jobs?queue=rare", 1): "/jobs?queue=rare",
        ("/jobs?queue=queue-3", 1): "/jobs?queue=queue-3",
        **{(f"{LIST}&{some}", 1): f"{LIST}&{some}" for some in SOME},
        # as far down as the others, whatever its number is there
        (f"{LIST}&queue=queue-3", pages): f"{LIST}&queue=queue-3&cursor={cursor}",
    }
    found: dict[tuple[str, int], list[float]] = {name: [] for name in wanted}
    kb = {name: len(took(path)[1]) / 1024 for name, path in wanted.items()}
    # in turn, so that what else the machine does meets all of them alike
    for _ in range(times):
        for name, path in wanted.items():
            found[name].append(took(path)[0])
    connection.close()
    return [
        Paged(
            store=store,
            jobs=jobs,
            path=name[0],
            page=name[1],
            first_ms=cold[wanted[name]],
            p50_ms=percentile(ms, 0.5),
            p99_ms=percentile(ms, 0.99),
            kb=kb[name],
        )
        for name, ms in found.items()
    ]


def _judge(some: str, page: dict[str, Any]) -> None:
    """A list that is there soon has to be the right one as well."""
    asked = dict(part.split("=") for part in some.split("&"))
    wrong = [job["id"] for job in page["jobs"] if any(job[name] != value for name, value in asked.items())]
    if wrong or not page["jobs"] or not page["finished"]:
        raise ServeFailed(f"{some} was answered with {len(page['jobs'])} jobs, {len(wrong)} of them others")
