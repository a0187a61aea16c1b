"""A load test: users that log in and look at a page, with thresholds that decide the exit code.

$ mainstay load target --port 8420 &
$ mainstay load run load_test.py
"""

from mainstay.load import URL, HTTPResponse, Workflow, step


class Visit(Workflow):
    base_url = "http://127.0.0.1:8420"
    rate = "50/s"
    duration = "2s"
    thresholds = ["p99 of me < 2s", "error rate < 1%"]

    @step()
    async def login(self, url: URL = "/login") -> HTTPResponse:
        return await self.client.http.post(url, json={"user": "ann"})

    @step("login")
    async def me(self, url: URL = "/me") -> HTTPResponse:
        return await self.client.http.get(url)
