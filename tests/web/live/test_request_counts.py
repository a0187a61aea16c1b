"""Counting requests: each once, under the status it was answered with, however it ended."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.web.live.request_counts import BOUNDS_S, CountingApp, RequestCounts, RequestTimes


async def asked(app: Any, requests: RequestCounts, path: str = "/api/v1/jobs", method: str = "GET") -> None:
    async def nothing(*_: Any) -> dict[str, str]:
        return {"type": "http.disconnect"}

    await CountingApp(app, requests)({"type": "http", "path": path, "method": method}, nothing, nothing)


async def answers(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def breaks(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("a bug")


async def breaks_late(scope: Any, receive: Any, send: Any) -> None:
    await answers(scope, receive, send)
    raise RuntimeError("a bug")


async def test_a_request_is_counted_once_under_its_status() -> None:
    requests = RequestCounts()
    await asked(answers, requests)
    await asked(answers, requests, method="BREW")
    assert requests.answered == {("api", "GET", 204): 1, ("api", "other", 204): 1}
    assert requests.open == 0
    assert sum(requests.times["api"].bins) == 2


@pytest.mark.parametrize(("app", "status"), [(breaks, 500), (breaks_late, 204)])
async def test_a_request_that_breaks_is_counted_as_it_was_answered(app: Any, status: int) -> None:
    requests = RequestCounts()
    with pytest.raises(RuntimeError):
        await asked(app, requests)
    assert requests.answered == {("api", "GET", status): 1}
    assert requests.open == 0


def test_times_are_binned_by_upper_bounds() -> None:
    times = RequestTimes()
    for took_s in (0.0, BOUNDS_S[0], BOUNDS_S[0] * 1.01, 1e9):
        times.add(took_s)
    assert (times.bins[0], times.bins[1], times.bins[-1]) == (2, 1, 1)
