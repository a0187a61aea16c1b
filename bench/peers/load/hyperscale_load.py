"""Hyperscale's workflow runner, called in this process: the command line of its wheel does not start.

Only classes of this file are run. Nothing of `hyperscale.commands` is imported: a workflow there has a public host.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import uvloop
from hyperscale.core.jobs.graphs.workflow_runner import WorkflowRunner
from hyperscale.core.jobs.models.env import Env
from hyperscale.graph import Workflow, step
from hyperscale.logging.config import LoggingConfig
from hyperscale.testing import URL, Data, HTTPResponse

from bench.peers.load.work import CONNECTIONS, JSON, KILOBYTE, ORDER, OUT, SCENARIO, SECONDS, SMALL, USER


class Get(Workflow):
    vus = CONNECTIONS
    duration = f"{SECONDS}s"

    @step()
    async def get(self, url: URL = SMALL) -> HTTPResponse:
        return await self.client.http.get(url)


class Post(Workflow):
    vus = CONNECTIONS
    duration = f"{SECONDS}s"

    @step()
    async def post(self, url: URL = JSON, data: Data = KILOBYTE) -> HTTPResponse:
        return await self.client.http.post(url, data=data)


class Steps(Workflow):
    vus = CONNECTIONS
    duration = f"{SECONDS}s"

    @step()
    async def login(self, url: URL = JSON, data: Data = USER) -> HTTPResponse:
        response = await self.client.http.post(url, data=data)
        assert response.status == 200
        assert response.json()["ok"]
        return response

    @step("login")
    async def browse(self, login: HTTPResponse | None = None, url: URL = SMALL) -> HTTPResponse:
        token = login.json()["token"]
        response = await self.client.http.get(url, headers={"Authorization": f"Bearer {token}"})
        assert response.status == 200
        assert b"small" in response.content
        return response

    @step("browse")
    async def order(self, url: URL = JSON, data: Data = ORDER) -> HTTPResponse:
        response = await self.client.http.post(url, data=data)
        assert response.status == 200
        assert response.json()["ok"]
        return response


async def counted() -> dict[str, int]:
    workflow = {"get": Get, "tls": Get, "post": Post, "steps": Steps}[SCENARIO]()
    # what its command line sets before it runs anything
    LoggingConfig().update(log_directory=os.getcwd(), log_level="fatal")
    runner = WorkflowRunner(Env(), 0, 0)
    runner.setup()
    _, found, _, error, _ = await runner.run(1, workflow, {}, CONNECTIONS)
    if error is not None:
        raise error
    # "executed" of the whole is that of the last step alone
    counts = [step["counts"] for step in found["results"]]
    return {"requests": sum(each["executed"] for each in counts), "failed": sum(each["failed"] for each in counts)}


if __name__ == "__main__":
    Path(OUT).write_text(json.dumps(uvloop.run(counted())))
