"""Load tests for the nodes of a cluster. Their requests say which process has sent them."""

from __future__ import annotations

#: users, arrivals and iterations
DEALT_TEST = """
import os
from mainstay.load import URL, HTTPResponse, Workflow, step


class Users(Workflow):
    vus = 10
    duration = "2s"

    @step()
    async def call(self, url: URL = "/users") -> HTTPResponse:
        return await self.client.http.get(url, params={"pid": str(os.getpid()), "user": str(self.vu.id)})


class Arrivals(Workflow):
    rate = "21/s"
    duration = "2s"

    @step()
    async def call(self, url: URL = "/arrivals") -> HTTPResponse:
        return await self.client.http.get(url, params={"pid": str(os.getpid())})


class Iterations(Workflow):
    vus = 9
    iterations = 27

    @step()
    async def call(self, url: URL = "/iterations") -> HTTPResponse:
        return await self.client.http.get(url, params={"pid": str(os.getpid())})
"""

#: each row goes to one iteration, and has the service times that a step reports
ROWS_TEST = """
import os
from pathlib import Path
from mainstay.load import URL, CustomResult, Feed, HTTPResponse, Workflow, step


class Shop(Workflow):
    vus = 24
    iterations = 240
    data = Feed.jsonl(Path(__file__).parent / "rows.jsonl", every="iteration")

    @step()
    async def call(self, url: URL = "/rows") -> HTTPResponse:
        return await self.client.http.get(url, params={"pid": str(os.getpid()), "row": str(self.vu.data["row"])})

    @step()
    async def took(self) -> list[CustomResult]:
        return [CustomResult(started=0.0, ended=each) for each in self.vu.data["took"]]
"""

#: two layers: the first one makes a value for the second one, and a part of it fails
LAYERS_TEST = """
import os
from mainstay.load import URL, HTTPResponse, Provide, Use, Workflow, depends, setup, state, step


class Login(Workflow):
    vus = 4
    iterations = 4

    @setup
    async def open_shop(self) -> str:
        return f"opened by {os.getpid()}"

    @step()
    async def call(self, url: URL = "/login") -> HTTPResponse:
        params = {"pid": str(os.getpid()), "setup": self.context["open_shop"]}
        return await self.client.http.get(url, params=params)

    @state("Shop")
    def ticket(self) -> Provide[str]:
        return f"a ticket of {os.getpid()}, {self.context['open_shop']}"


class Broken(Workflow):
    vus = 2
    iterations = 2

    @step()
    async def call(self, url: URL = "/broken") -> HTTPResponse:
        answer = await self.client.http.get(url, params={"pid": str(os.getpid())})
        raise RuntimeError(f"no shop: {answer.status}")


@depends("Login")
class Shop(Workflow):
    vus = 4
    iterations = 8

    @state("Login")
    def given(self, ticket: str | None = None) -> Use[str]:
        return ticket

    @step()
    async def call(self, url: URL = "/shop") -> HTTPResponse:
        return await self.client.http.get(url, params={"pid": str(os.getpid()), "ticket": self.given()})


@depends("Broken")
class Never(Workflow):
    vus = 4
    iterations = 4

    @step()
    async def call(self, url: URL = "/never") -> HTTPResponse:
        return await self.client.http.get(url, params={"pid": str(os.getpid())})
"""

#: as often as the target answers
FAST_TEST = """
from mainstay.load import URL, HTTPResponse, Workflow, step


class Shop(Workflow):
    vus = 4
    duration = "1s"

    @step()
    async def browse(self, url: URL = "/json") -> HTTPResponse:
        return await self.client.http.get(url)
"""
