"""Ourselves, as a user would write it. Which of the workflows is run, and how, is told on the command line."""

from __future__ import annotations

from bench.peers.load.work import KILOBYTE, ORDER, USER
from mainstay.load import URL, Check, Data, HTTPResponse, Workflow, step


class Get(Workflow):
    @step()
    async def get(self, url: URL = "/small.txt") -> HTTPResponse:
        return await self.client.http.get(url)


class Post(Workflow):
    @step()
    async def post(self, url: URL = "/json", data: Data = KILOBYTE) -> HTTPResponse:
        return await self.client.http.post(url, data=data)


class Steps(Workflow):
    @step()
    async def login(self, url: URL = "/json") -> HTTPResponse:
        return await self.client.http.post(url, json=USER)

    @step("login")
    async def logged_in(self, login: HTTPResponse) -> Check:
        return Check(login.status == 200 and login.json()["ok"], "not logged in")

    @step("logged_in")
    async def browse(self, login: HTTPResponse, url: URL = "/small.txt") -> HTTPResponse:
        headers = {"Authorization": f"Bearer {login.json()['token']}"}
        return await self.client.http.get(url, headers=headers)

    @step("browse")
    async def something_to_see(self, browse: HTTPResponse) -> Check:
        return Check(browse.status == 200 and "small" in browse.text(), "nothing to see")

    @step("something_to_see")
    async def order(self, url: URL = "/json") -> HTTPResponse:
        return await self.client.http.post(url, json=ORDER)

    @step("order")
    async def ordered(self, order: HTTPResponse) -> Check:
        return Check(order.status == 200 and order.json()["ok"], "not ordered")


class Users(Workflow):
    """Very many of them, who take their time."""

    think = "2s-4s"

    @step()
    async def get(self, url: URL = "/small.txt") -> HTTPResponse:
        return await self.client.http.get(url)
