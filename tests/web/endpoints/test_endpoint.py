"""Slow handlers as jobs: an ASGI app, a task, and clients that know HTTP only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from mainstay import App
from mainstay.control import Completion
from mainstay.errors import InvalidInput
from mainstay.task.endpoints import AsyncEndpoint
from mainstay.testing import Harness

NOBODY = "018bcfe5-6800-7000-8000-0123456789ab"


class Page(msgspec.Struct):
    number: int
    day: date


def a_program(url: str = "memory:") -> tuple[App, Any]:
    app = App(url)

    @app.task(name="report.make", retries=0)
    async def make(year: int, title: str = "all", pages: list[Page] | None = None) -> dict[str, Any]:
        if year < 0:
            raise ValueError("the password is hunter2")
        return {"year": year, "title": title, "pages": len(pages or ())}

    return app, make


@contextlib.asynccontextmanager
async def asking(web: Any, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(web)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as http:
        yield http


@contextlib.asynccontextmanager
async def trying(**options: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Harness, Any]]:
    app, make = a_program()
    web = Starlette(routes=AsyncEndpoint(make, **options).routes("/reports"))
    async with Harness(app) as box, asking(web) as http:
        yield http, box, make


# the way of a job -----------------------------------------------------------------------------------


async def test_a_post_is_accepted_and_its_result_is_where_the_status_leads() -> None:
    async with trying() as (http, box, _):
        posted = await http.post("/reports", json={"year": 2026, "pages": [{"number": 1, "day": "2026-01-02"}]})
        where = posted.headers["Location"]
        assert (posted.status_code, int(posted.headers["Retry-After"])) == (202, 2)
        assert posted.json() == {"id": where.rpartition("/")[2], "status": "pending", "location": where}

        waiting = await http.get(where)
        assert (waiting.status_code, waiting.json()["status"], waiting.headers["Retry-After"]) == (200, "pending", "2")
        early = await http.get(f"{where}/result")
        assert (early.status_code, early.json()["type"]) == (409, "not_settled")

        await box.drain()
        done = await http.get(where)
        assert (done.status_code, done.headers["Location"]) == (303, f"{where}/result")
        result = await http.get(done.headers["Location"])
        assert (result.status_code, result.json()) == (200, {"year": 2026, "title": "all", "pages": 1})
        assert result.headers["Cache-Control"] == "no-store"


async def test_a_result_can_be_embedded_in_the_status() -> None:
    async with trying(results="embed") as (http, box, _):
        where = (await http.post("/reports", json={"year": 1})).headers["Location"]
        await box.drain()

        done = await http.get(where)

        assert done.status_code == 200
        assert done.json()["status"] == "succeeded"
        assert done.json()["result"] == {"year": 1, "title": "all", "pages": 0}


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"


async def test_whoever_prefers_to_wait_gets_the_result_as_soon_as_it_is_there(url: str) -> None:
    app, make = a_program(url)
    web = Starlette(routes=AsyncEndpoint(make).routes("/reports"))
    async with app, asking(web, Prefer="respond-async, wait=20") as http:
        posting = asyncio.create_task(http.post("/reports", json={"year": 7}))
        session = await app.control.claims.open_session()
        while not (jobs := await app.control.claims.claim(["default"], session.id, 1)):
            await asyncio.sleep(0)
        await app.control.claims.start(jobs)
        assert not posting.done()
        await app.control.attempts.complete([Completion(jobs[0], result={"year": 7})])

        answer = await posting

        assert (answer.status_code, answer.headers["Location"]) == (303, f"/reports/{jobs[0].id}/result")
        assert answer.headers["Preference-Applied"] == "respond-async, wait=20"
        assert answer.headers["Vary"] == "Prefer"
        assert (await http.get(answer.headers["Location"])).json() == {"year": 7}


async def test_a_wait_that_is_over_ends_as_without_one() -> None:
    async with trying(longest_wait="10ms") as (http, _, _make):
        posted = await http.post("/reports", json={"year": 1}, headers={"Prefer": "wait=9"})
        assert (posted.status_code, posted.headers["Preference-Applied"]) == (202, "wait=0.01")
        looked = await http.get(posted.headers["Location"], headers={"Prefer": "wait=9"})
        assert (looked.status_code, looked.json()["status"]) == (200, "pending")


async def test_progress_is_told_while_it_runs() -> None:
    app, make = a_program()
    web = Starlette(routes=AsyncEndpoint(make).routes("/reports"))
    async with app, asking(web) as http:
        where = (await http.post("/reports", json={"year": 1})).headers["Location"]
        session = await app.control.claims.open_session()
        (job,) = await app.control.claims.claim(["default"], session.id, 1)
        await app.control.claims.start([job])
        await app.control.claims.report([app.control.claims.progress(job, 3, 10, "reading")])

        seen = (await http.get(where)).json()

        assert (seen["status"], seen["progress"]) == ("running", {"done": 3, "total": 10, "message": "reading"})
        assert seen["started_ms"] >= seen["created_ms"] > 0


async def test_the_same_key_is_the_same_job() -> None:
    async with trying() as (http, _, _make):
        key = {"Idempotency-Key": "7"}
        first = await http.post("/reports", json={"year": 1}, headers=key)
        again = await http.post("/reports", json={"year": 1}, headers=key)
        other = await http.post("/reports", json={"year": 2}, headers=key)

        assert first.headers["Location"] == again.headers["Location"]
        assert (other.status_code, other.json()["type"]) == (409, "key_conflict")
        bad = await http.post("/reports", json={"year": 1}, headers={"Idempotency-Key": "x" * 201})
        assert (bad.status_code, bad.json()["field"]) == (422, "Idempotency-Key")


async def test_two_keys_are_refused() -> None:
    async with trying() as (http, box, _):
        twice = await http.post(
            "/reports", json={"year": 1}, headers=[("Idempotency-Key", "7"), ("Idempotency-Key", "8")]
        )

        assert (twice.status_code, twice.json()["field"]) == (422, "Idempotency-Key")
        assert (await box.store.stats()).queues == {}


async def test_who_asks_for_something_else_is_told_what_there_is() -> None:
    async with trying() as (http, _, _make):
        where = (await http.post("/reports", json={"year": 1})).headers["Location"]

        other = await http.put(where)

        assert other.status_code == 405
        assert set(other.headers["Allow"].split(", ")) == {"GET", "HEAD", "DELETE"}


async def test_a_post_that_is_repeated_after_the_end_leads_to_the_result() -> None:
    async with trying() as (http, box, _):
        key = {"Idempotency-Key": "7"}
        where = (await http.post("/reports", json={"year": 1}, headers=key)).headers["Location"]
        await box.drain()

        again = await http.post("/reports", json={"year": 1}, headers=key)

        assert (again.status_code, again.headers["Location"]) == (303, f"{where}/result")


async def test_a_post_that_is_repeated_after_its_job_was_deleted_is_told_so() -> None:
    async with trying() as (http, box, _):
        key = {"Idempotency-Key": "7"}
        job_id = (await http.post("/reports", json={"year": 1}, headers=key)).json()["id"]
        await box.app.control.operations.delete(job_id, actor="ann", reason="a test")

        again = await http.post("/reports", json={"year": 1}, headers=key)

        assert (again.status_code, again.json()["type"]) == (410, "job_not_found")
        assert again.json()["field"] == "Idempotency-Key"


# refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "year"),
        ({"year": "soon"}, "year"),
        ({"year": 1, "titel": "x"}, "titel"),
        ({"year": 1, "pages": [{"number": 1, "day": "2026-01-02"}, {"number": 1, "day": "no"}]}, "pages[1].day"),
        ({"year": 2**70}, "year"),
        ([], "body"),
    ],
)
async def test_a_body_that_does_not_fit_the_task_is_refused_naming_the_field(body: Any, field: str) -> None:
    async with trying() as (http, box, _):
        answer = await http.post("/reports", json=body)

        assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")
        assert answer.json()["field"] == field
        assert "report.make" not in answer.text
        assert box.submitted() == []


@pytest.mark.parametrize(
    ("content", "media", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"year=1", "application/x-www-form-urlencoded", 415),
        (b'{"year": 1}', "", 415),
        (b'{"year": 1, "title": "%s"}' % (b"x" * 2_000), "application/json", 413),
    ],
    ids=["cut short", "not text", "a form", "of no type", "too large"],
)
async def test_what_cannot_be_read_is_refused(content: bytes, media: str, status: int) -> None:
    async with trying(body_limit=1_000 if status == 413 else 1_000_000) as (http, _, _make):
        answer = await http.post("/reports", content=content, headers={"Content-Type": media} if media else {})

        assert answer.status_code == status
        assert answer.headers["Content-Type"] == "application/problem+json"


async def test_of_text_that_is_no_unicode_it_is_said_what_is_wrong() -> None:
    async with trying() as (http, box, _make):
        body = b'{"year": 1, "title": "\\ud800"}'
        answer = await http.post("/reports", content=body, headers={"Content-Type": "application/json"})

        assert answer.status_code == 400
        assert "text that is not Unicode: \\ud800" in answer.json()["detail"]
        assert box.submitted() == []


async def test_a_job_of_another_task_and_what_is_no_id_are_not_there() -> None:
    async with trying() as (http, box, _):
        other = await box.app.control.jobs.submit("other")
        for job_id in (NOBODY, other.id, "x", "%00"):
            for answer in (await http.get(f"/reports/{job_id}"), await http.delete(f"/reports/{job_id}")):
                assert answer.status_code == 404


def test_only_tasks_whose_arguments_have_names_can_be_endpoints() -> None:
    app = App("memory:")

    @app.task(name="many")
    def many(*numbers: int) -> None: ...

    with pytest.raises(InvalidInput, match="cannot be given by name"):
        AsyncEndpoint(many)
    with pytest.raises(InvalidInput, match="is not a task"):
        AsyncEndpoint(print)  # type: ignore[arg-type]


# ends -----------------------------------------------------------------------------------------------


async def test_a_failed_job_is_a_problem_with_its_code_and_without_its_message() -> None:
    async with trying() as (http, box, _):
        where = (await http.post("/reports", json={"year": -1})).headers["Location"]
        await box.drain()

        for path in (where, f"{where}/result"):
            answer = await http.get(path)
            told = answer.json()
            assert (answer.status_code, told["job_status"]) == (500, "quarantined")
            assert told["type"] == "error"
            assert "hunter2" not in answer.text
            assert "ValueError" not in answer.text


async def test_the_message_of_an_error_is_shown_if_that_is_wanted() -> None:
    async with trying(expose=True, statuses={"error": 422}) as (http, box, _):
        where = (await http.post("/reports", json={"year": -1})).headers["Location"]
        await box.drain()

        answer = await http.get(where)
        assert answer.json()["detail"] == "ValueError: the password is hunter2"
        assert (answer.status_code, answer.json()["type"]) == (422, "error")


async def test_a_delete_cancels_what_waits_at_once() -> None:
    async with trying() as (http, box, _):
        where = (await http.post("/reports", json={"year": 1})).headers["Location"]

        assert (await http.delete(where)).status_code == 204
        assert (await http.delete(where)).status_code == 204
        gone = await http.get(where)
        assert (gone.status_code, gone.json()["type"]) == (410, "cancelled")
        done = (await http.post("/reports", json={"year": 1})).headers["Location"]
        await box.drain()
        assert (await http.delete(done)).status_code == 409


async def test_a_refusal_tells_nothing_of_what_the_job_went_through() -> None:
    def owner(request: Request) -> str:
        return "ann"

    async with trying(owner=owner) as (http, box, _):
        key = {"Idempotency-Key": "7"}
        where = (await http.post("/reports", json={"year": 1}, headers=key)).headers["Location"]
        other = await http.post("/reports", json={"year": 2}, headers=key)
        await box.drain()
        late = await http.delete(where)

        assert (late.status_code, late.json()["type"]) == (409, "invalid_transition")
        assert late.json()["detail"] == "the job is succeeded, so there is nothing to cancel"
        assert (late.json()["id"], late.json()["job_status"]) == (where.rpartition("/")[2], "succeeded")
        assert (other.status_code, other.json()["type"]) == (409, "key_conflict")
        assert (
            other.json()["detail"]
            == "this key was used before with other arguments; use another key, or send the same arguments"
        )
        assert other.json()["field"] == "Idempotency-Key"


async def test_nothing_that_is_told_may_be_kept() -> None:
    async with trying() as (http, box, _):
        posted = await http.post("/reports", json={"year": 1})
        where = posted.headers["Location"]
        told = [posted, await http.get(where), await http.get(f"{where}/result"), await http.get(f"/reports/{NOBODY}")]
        told.append(await http.post("/reports", json={"year": "soon"}))
        await box.drain()
        told += [await http.get(where), await http.get(f"{where}/result"), await http.delete(where)]
        assert [answer.status_code for answer in told] == [202, 200, 409, 404, 422, 303, 200, 409]
        assert {answer.headers["Cache-Control"] for answer in told} == {"no-store"}


async def test_a_delete_asks_the_worker_of_what_runs() -> None:
    app, make = a_program()
    web = Starlette(routes=AsyncEndpoint(make).routes("/reports"))
    async with app, asking(web) as http:
        where = (await http.post("/reports", json={"year": 1})).headers["Location"]
        session = await app.control.claims.open_session()
        jobs = await app.control.claims.claim(["default"], session.id, 1)
        await app.control.claims.start(jobs)

        answer = await http.delete(where)

        assert (answer.status_code, answer.json()["status"], answer.headers["Location"]) == (202, "cancelling", where)


@pytest.mark.parametrize(("ending", "status"), [("cancelled", 204), ("succeeded", 409)])
async def test_a_delete_that_may_wait_tells_how_it_ended(ending: str, status: int) -> None:
    app, make = a_program()
    web = Starlette(routes=AsyncEndpoint(make).routes("/reports"))
    async with app, asking(web) as http:
        where = (await http.post("/reports", json={"year": 1})).headers["Location"]
        session = await app.control.claims.open_session()
        jobs = await app.control.claims.claim(["default"], session.id, 1)
        async with app.control.store.wake([f"session:{session.id}"]) as asked:
            deleting = asyncio.create_task(http.delete(where, headers={"Prefer": "wait=20"}))
            while (await app.control.jobs.get(jobs[0].id)).status != "cancelling":
                assert await asked.wait(60)
        if ending == "cancelled":
            await app.control.attempts.confirm_cancelled(jobs)
        else:
            await app.control.attempts.complete([Completion(jobs[0])])

        answer = await deleting

        assert answer.status_code == status
        if status == 204:
            assert answer.headers["Preference-Applied"] == "wait=20"
        else:
            assert answer.json()["job_status"] == "succeeded"


# whose ----------------------------------------------------------------------------------------------


async def test_a_job_is_there_only_for_whoever_posted_it() -> None:
    async def owner(request: Request) -> str | None:
        return request.headers.get("x-user")

    ann, bob = {"X-User": "ann"}, {"X-User": "bob"}
    async with trying(owner=owner) as (http, box, _):
        keyed = {"Idempotency-Key": "1"}
        where = (await http.post("/reports", json={"year": 1}, headers=ann | keyed)).headers["Location"]
        other = (await http.post("/reports", json={"year": 1}, headers=bob | keyed)).headers["Location"]
        await box.drain()

        assert where != other
        assert (await http.get(where, headers=ann)).status_code == 303
        theirs = [await http.get(where, headers=bob), await http.get(f"{where}/result", headers=bob)]
        theirs.append(await http.delete(where, headers=bob))
        nobodys = await http.get(f"/reports/{NOBODY}", headers=bob)
        assert [answer.status_code for answer in theirs] == [404, 404, 404]
        assert {answer.content for answer in theirs} == {nobodys.content}
        assert (await http.get(where)).status_code == 401
        assert (await http.post("/reports", json={"year": 1})).status_code == 401


async def test_a_unique_job_of_somebody_else_is_not_given_away() -> None:
    def owner(request: Request) -> str:
        return request.headers["x-user"]

    async with trying(owner=owner, options={"unique": True}) as (http, _, _make):
        first = await http.post("/reports", json={"year": 1}, headers={"X-User": "ann"})
        again = await http.post("/reports", json={"year": 1}, headers={"X-User": "ann"})
        other = await http.post("/reports", json={"year": 1}, headers={"X-User": "bob"})

        assert again.headers["Location"] == first.headers["Location"]
        assert (other.status_code, "Location" in other.headers) == (409, False)
        assert first.json()["id"] not in other.text


async def test_what_the_owner_hook_raises_is_the_apps_business() -> None:
    def owner(request: Request) -> str:
        raise HTTPException(403, "no")

    async with trying(owner=owner) as (http, _, _make):
        assert (await http.post("/reports", json={"year": 1})).status_code == 403


# where ----------------------------------------------------------------------------------------------


async def test_it_can_be_mounted() -> None:
    app, make = a_program()
    web = Starlette(routes=[Mount("/v1", routes=[Mount("/reports", AsyncEndpoint(make))])])
    async with Harness(app) as box, asking(web) as http:
        posted = await http.post("/v1/reports/", json={"year": 1})
        assert posted.headers["Location"].startswith("/v1/reports/")
        await box.drain()
        done = await http.get(posted.headers["Location"])
        assert (await http.get(done.headers["Location"])).json()["year"] == 1


@pytest.mark.parametrize("root", ["/api", "/rep"])
async def test_behind_a_proxy_that_takes_a_part_of_the_path_away_it_is_told_with_it(root: str) -> None:
    app, make = a_program()
    endpoint = AsyncEndpoint(make)
    web = Starlette(routes=[*endpoint.routes("/reports"), Mount("/v1", routes=[Mount("/reports", endpoint)])])
    transport = httpx.ASGITransport(web, root_path=root)
    async with Harness(app) as box, httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        posted = await http.post("/reports", json={"year": 1})
        where = posted.headers["Location"]
        assert where == posted.json()["location"] == f"{root}/reports/{posted.json()['id']}"
        await box.drain()
        # as the proxy sends it on
        done = await http.get(where.removeprefix(root))
        assert (done.status_code, done.headers["Location"]) == (303, f"{where}/result")
        # and as a server does that knows of it
        mounted = await http.post(f"{root}/v1/reports/", json={"year": 1})
        assert mounted.headers["Location"] == f"{root}/v1/reports/{mounted.json()['id']}"


async def test_a_path_that_is_not_plain_text_is_written_as_it_was_sent() -> None:
    app, make = a_program()
    web = Starlette(routes=[Mount("/{tenant}", routes=AsyncEndpoint(make).routes("/reports"))])
    async with Harness(app), asking(web) as http:
        posted = await http.post("/%C3%A4%0D%0Ax/reports", json={"year": 1})

        assert posted.headers["Location"].startswith("/%C3%A4%0D%0Ax/reports/")
        assert (await http.get(posted.headers["Location"])).status_code == 200


async def test_handlers_of_ones_own_can_do_the_same() -> None:
    app, make = a_program()
    endpoint = AsyncEndpoint(make)

    async def post(request: Request) -> Response:
        return await endpoint.accept(request, {"year": int((await request.body()).decode())})

    async def get(request: Request) -> Response:
        return await endpoint.status(request, request.path_params["id"])

    web = Starlette(routes=[Route("/r", post, methods=["POST"]), Route("/r/{id}", get)])
    async with Harness(app) as box, asking(web) as http:
        posted = await http.post("/r", content="5")
        assert posted.status_code == 202
        await box.drain()
        assert (await http.get(posted.headers["Location"])).status_code == 303
        assert (await http.get(f"/r/{NOBODY}")).status_code == 404


async def test_a_store_that_does_not_answer_is_told_without_saying_why() -> None:
    app, make = a_program()
    web = Starlette(routes=AsyncEndpoint(make).routes("/reports"))
    async with Harness(app) as box, asking(web) as http:
        await box.store.close()
        answer = await http.post("/reports", json={"year": 1})

        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert answer.json()["detail"] == "the request cannot be processed now; try again in a moment"


def test_what_it_offers_can_be_put_into_an_openapi_description() -> None:
    _, make = a_program()
    described = AsyncEndpoint(make).openapi("/reports")

    assert list(described["paths"]) == ["/reports", "/reports/{id}", "/reports/{id}/result"]
    body = described["paths"]["/reports"]["post"]["requestBody"]
    name = "Arguments_of_report.make"
    assert body["content"]["application/json"]["schema"] == {"$ref": f"#/components/schemas/{name}"}
    schemas = described["components"]["schemas"]
    assert set(schemas) == {name, "Page", "JobAccepted", "JobProblem", "JobProgress", "JobStatus"}
    schema = schemas[name]
    assert (schema["required"], list(schema["properties"])) == (["year"], ["year", "title", "pages"])
