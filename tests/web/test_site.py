"""The parts of the server, put together."""

from __future__ import annotations

from typing import Any

import jinja2
import pytest

from mainstay.web.dashboard import assets, page
from tests.web.conftest import Server, serving


@pytest.mark.parametrize(
    ("path", "media"),
    [
        ("/api/v1/stats", "application/json"),
        ("/api/v1/openapi.json", "application/json"),
        ("/api/v1/nothing", "application/problem+json"),
        ("/api/v2/jobs", "application/problem+json"),
        ("/livez", ""),
        ("/", "text/html"),
        ("/nothing", "text/html"),
    ],
)
async def test_each_part_answers_in_its_own_form(server: Server, path: str, media: str) -> None:
    answer = await server.client.get(path)
    assert answer.headers.get("content-type", "").startswith(media)
    assert answer.status_code == (404 if path.endswith(("nothing", "v2/jobs")) else 200)


async def test_a_path_with_a_slash_at_its_end_is_another_one(server: Server) -> None:
    for path in ("/api/v1/stats/", "/livez/"):
        answer = await server.client.get(path)
        assert answer.status_code == 404, path


async def test_what_the_description_is_not_asked_for_is_refused_as_a_problem(server: Server) -> None:
    answer = await server.client.post("/api/v1/openapi.json")
    assert (answer.status_code, answer.json()["type"]) == (405, "method_not_allowed")


async def test_every_store_has_its_own_numbers() -> None:
    async with serving({"one": "memory:", "two": "memory:"}) as server:
        await server.stores.by_name["two"].control.jobs.submit("a")
        counts = {
            name: (await server.client.get("/api/v1/stats", params={"store": name})).json()["queues"]
            for name in ("one", "two")
        }
        assert counts["one"] == {}
        assert counts["two"]["default"]["counts"] == {"pending": 1}


async def test_whoever_asks_first_waits_for_no_template_to_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    page._environment.cache_clear()
    assets.assets.cache_clear()
    async with serving() as server:

        def too_late(*_: Any, **__: Any) -> None:
            raise AssertionError("this was to be done before anybody could ask")

        monkeypatch.setattr(jinja2.Environment, "compile", too_late)
        monkeypatch.setattr(assets, "_asset", too_late)
        for path in ("/", "/jobs", "/queues", "/static/dashboard.css"):
            assert (await server.client.get(path)).status_code == 200, path
