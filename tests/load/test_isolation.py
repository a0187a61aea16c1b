"""Users are users: what one has, no other sees."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstay.load.target import TargetServer
from tests.load.trials import ran, written

pytestmark = pytest.mark.slow

#: every user says who it is in each way there is, and looks whether all that comes back is its own
TOKENS = """
class Shop(Workflow):
    data = Feed([{"user": f"row-{n}"} for n in range(200)])

    @on_start
    async def come(self):
        self.mine = f"token-{self.vu.id}"
        self.row = self.vu.data["user"]
        await self.client.http.get("/cookies", params={"who": self.mine})

    @step()
    async def left(self, url: URL = "/echo") -> HTTPResponse:
        self.context["own"] = f"{self.mine}/{self.vu.iteration}"
        return await self.client.http.post(url, json={"token": f"{self.mine}/{self.vu.iteration}/left"})

    @step()
    async def right(self, url: URL = "/echo") -> HTTPResponse:
        return await self.client.http.post(url, json={"token": f"{self.mine}/{self.vu.iteration}/right"})

    @step()
    async def cookie(self, url: URL = "/cookies") -> HTTPResponse:
        return await self.client.http.get(url)

    @step("left", "right", "cookie")
    async def own(self, left: HTTPResponse, right: HTTPResponse, cookie: HTTPResponse) -> list[Check]:
        said = [json.loads(one.json()["body"])["token"] for one in (left, right)]
        return [
            Check(said == [f"{self.mine}/{self.vu.iteration}/{side}" for side in ("left", "right")], f"echo {said}"),
            Check(cookie.json()["cookies"] == {"who": self.mine}, f"cookie {cookie.json()}"),
            Check(self.vu.data["user"] == self.row, f"row {self.vu.data}"),
            Check(self.context["own"] == f"{self.mine}/{self.vu.iteration}", f"context {self.context['own']}"),
        ]

    @on_stop
    async def go(self):
        self.gauge(f"{self.mine} {self.row}", 1)
"""


@pytest.fixture
async def target() -> AsyncIterator[TargetServer]:
    async with TargetServer() as found:
        yield found


@pytest.mark.parametrize("model", [{"vus": 40, "iterations": 400}, {"rate": "150/s", "duration": "1s"}])
async def test_nothing_leaks_between_users(target: TargetServer, tmp_path: Path, model: dict[str, object]) -> None:
    test = written(tmp_path, "import json\n" + TOKENS)

    summary = await ran(test, processes=2, base_url=target.url, **model)

    (check,) = summary.checks
    assert check.failed == 0, check.reasons
    assert check.passed == 4 * summary.iterations > 400
    assert (summary.errors, summary.failed) == ({}, 0)
    # no two users had the same row
    rows = [metric.name.split()[1] for metric in summary.metrics]
    assert len(rows) == len(set(rows)) > 0


SHARING = """
class Shop(Workflow):
    data = Feed([{"user": "ann", "cart": []}, {"user": "bob", "cart": []}])

    @setup
    async def shop(self):
        return {"seen": [], "open": {"at": 8}}

    @on_start
    async def come(self):
        self.fresh = dict(self.vu.data)
        self.vu.data["token"] = self.vu.id
        self.vu.data["cart"].append(self.vu.id)

    @step()
    async def own(self) -> list[Check]:
        return [
            Check("token" not in self.fresh, f"{self.fresh} was used"),
            Check(self.vu.data["cart"] == [self.vu.id], f"{self.vu.data} is somebody else's"),
        ]

    @step("own")
    async def look(self, shop: dict) -> None:
        assert shop == {"seen": [], "open": {"at": 8}}

    @step("look")
    async def spoil(self, shop: dict) -> None:
        shop["seen"].append(self.vu.id)
"""


async def test_rows_are_copies_and_what_all_share_cannot_be_changed(tmp_path: Path) -> None:
    summary = await ran(written(tmp_path, SHARING), vus=6, iterations=30, processes=2)

    (check,) = summary.checks
    assert (check.failed, check.passed) == (0, 60), check.reasons
    assert summary.errors == {"TypeError": 30}, "the step that would change it, and no other"
