"""Endpoints inside an app of FastAPI: beside its own handlers, from within one, and in its description."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
import pydantic
import pytest
from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response

from mainstay import App
from mainstay.task.endpoints import AsyncEndpoint
from mainstay.testing import Harness


class Order(pydantic.BaseModel):
    year: int
    title: str = "all"


async def user(authorization: Annotated[str | None, Header()] = None) -> str:
    if authorization is None:
        raise HTTPException(401, "who are you?")
    return authorization


def owner(request: Request) -> str:
    """As the app's own handlers would ask."""
    if "authorization" not in request.headers:
        raise HTTPException(401, "who are you?")
    return request.headers["authorization"]


@contextlib.asynccontextmanager
async def trying(how: str) -> AsyncIterator[tuple[httpx.AsyncClient, Harness, FastAPI]]:
    """An app whose reports are routes of it, are mounted, or are handlers of its own."""
    jobs, web = App("memory:"), FastAPI()

    @jobs.task(name="report.make", retries=0)
    async def make(year: int, title: str = "all") -> dict[str, Any]:
        return {"year": year, "title": title}

    endpoint = AsyncEndpoint(make, owner=owner)

    @web.get("/hello")
    async def hello() -> str:
        return "hello"

    if how == "routes":
        web.router.routes.extend(endpoint.routes("/reports"))
    elif how == "mounted":
        web.mount("/reports", endpoint)
    else:

        @web.post("/reports", status_code=202)
        async def post(request: Request, order: Order, _: Annotated[str, Depends(user)]) -> Response:
            return await endpoint.accept(request, order.model_dump())

        @web.get("/reports/{job_id}")
        async def status(request: Request, job_id: str) -> Response:
            return await endpoint.status(request, job_id)

        @web.get("/reports/{job_id}/result")
        async def result(request: Request, job_id: str) -> Response:
            return await endpoint.result(request, job_id)

        @web.delete("/reports/{job_id}")
        async def cancel(request: Request, job_id: str) -> Response:
            return await endpoint.cancel(request, job_id)

    transport, headers = httpx.ASGITransport(web), {"Authorization": "ann"}
    async with (
        Harness(jobs) as box,
        httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as http,
    ):
        yield http, box, web


every = pytest.mark.parametrize("how", ["routes", "mounted", "handlers"])


def posted_to(how: str) -> str:
    return "/reports/" if how == "mounted" else "/reports"


@every
async def test_a_job_goes_its_way_inside_an_app_of_fastapi(how: str) -> None:
    async with trying(how) as (http, box, _):
        posted = await http.post(posted_to(how), json={"year": 2026}, headers={"Idempotency-Key": "7"})
        again = await http.post(posted_to(how), json={"year": 2026}, headers={"Idempotency-Key": "7"})
        where = posted.headers["Location"]
        waiting = await http.get(where)
        await box.drain()
        done = await http.get(where, follow_redirects=True)

        assert (posted.status_code, again.headers["Location"]) == (202, where)
        assert waiting.json()["status"] == "pending"
        assert (done.status_code, done.json()) == (200, {"year": 2026, "title": "all"})
        assert (await http.get("/hello")).json() == "hello"


@every
async def test_a_job_is_cancelled_inside_an_app_of_fastapi(how: str) -> None:
    async with trying(how) as (http, _, _web):
        where = (await http.post(posted_to(how), json={"year": 2026})).headers["Location"]

        assert (await http.delete(where)).status_code == 204
        assert (await http.get(where)).status_code == 410


@every
async def test_what_does_not_fit_and_who_is_not_known_are_refused_inside_an_app_of_fastapi(how: str) -> None:
    async with trying(how) as (http, _, _web):
        wrong = await http.post(posted_to(how), json={"year": "soon"})
        where = (await http.post(posted_to(how), json={"year": 2026})).headers["Location"]
        ben = await http.get(where, headers={"Authorization": "ben"})
        del http.headers["Authorization"]
        nobody = await http.post(posted_to(how), json={"year": 2026})

        assert wrong.status_code == 422
        assert ben.status_code == 404
        assert (nobody.status_code, nobody.json()) == (401, {"detail": "who are you?"})


async def test_the_description_of_the_app_takes_in_that_of_the_endpoint() -> None:
    async with trying("routes") as (http, _, web):
        jobs = App("memory:")

        @jobs.task(name="report.make")
        async def make(year: int) -> int:
            return year

        own, more = web.openapi(), AsyncEndpoint(make).openapi("/reports")
        web.openapi_schema = {**own, "paths": {**own["paths"], **more["paths"]}, "components": more["components"]}

        told = (await http.get("/openapi.json")).json()
        assert {"/hello", "/reports", "/reports/{id}", "/reports/{id}/result"} <= told["paths"].keys()
