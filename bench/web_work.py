"""What is asked of a server under load, for `mainstay load run`; wrk asks the same."""

from __future__ import annotations

from mainstay.load import URL, Data, HTTPResponse, Workflow, step

#: its payload is 100 bytes of JSON
JOB = {"name": "bench", "payload": {"text": "x" * 89}}
BULK = 100
JOBS = {"jobs": [JOB] * BULK}


class Submit(Workflow):
    @step()
    async def submit(self, url: URL = "/api/v1/jobs", data: Data = JOB) -> HTTPResponse:
        return await self.client.http.post(url, data=data)


class Bulk(Workflow):
    @step()
    async def submit(self, url: URL = "/api/v1/jobs/bulk", data: Data = JOBS) -> HTTPResponse:
        return await self.client.http.post(url, data=data)


class Page(Workflow):
    @step()
    async def page(self, url: URL = "/api/v1/jobs?limit=50") -> HTTPResponse:
        return await self.client.http.get(url)


class One(Workflow):
    @step()
    async def one(self) -> HTTPResponse:
        return await self.client.http.get(f"/api/v1/jobs/{self.params['job']}")
