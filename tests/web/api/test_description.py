"""The API against its own description: what is described is done, and what is not is refused."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from mainstay.clock import seconds
from mainstay.errors import InvalidInput
from mainstay.web.api.openapi import described
from mainstay.web.api.routes import operations
from mainstay.web.options import WebOptions
from mainstay.web.security.middleware import wrapped
from mainstay.web.security.tokens import Tokens
from mainstay.web.site import make_site
from mainstay.web.stores import ServedStores
from tests.web.conftest import Server

EXAMPLES = 3
#: what fits the description may still be refused by rules that a schema cannot tell, or by how things stand
MAY_REFUSE = ["2xx", "304", "404", "409", "412", "422"]
REFUSES = ["400", "401", "403", "404", "405", "409", "412", "413", "415", "422", "428"]


async def test_the_description_is_there_for_anybody_and_names_every_operation(server: Server) -> None:
    found = (await server.client.get("/api/v1/openapi.json")).json()
    assert found["openapi"] == "3.1.0"
    named = {each["operationId"] for path in found["paths"].values() for each in path.values()}
    assert named >= {operation.id for operation in operations()}
    assert {"stream_store", "stream_job"} <= named


def test_each_operation_has_a_name_of_its_own_and_says_what_it_needs() -> None:
    names = [operation.id for operation in operations()]
    assert len(set(names)) == len(names)
    found = described(operations(), stores=["main"])
    for operation in operations():
        told = found["paths"][operation.path][operation.method.lower()]
        assert f"`{operation.scope}`" in told["description"]
        assert {"401", "403", "422", "503"} <= told["responses"].keys()


def test_what_stands_below_a_field_describes_it() -> None:
    found = described(operations(), stores=["main", "other"])
    assert found["components"]["schemas"]["JobSubmission"]["properties"]["name"]["description"] == "name of its task"
    (text,) = [each for each in found["paths"]["/jobs"]["get"]["parameters"] if each["name"] == "text"]
    assert text["description"] == "text in its id, name, reason or last error"
    (store,) = [each for each in found["paths"]["/stats"]["get"]["parameters"] if each["name"] == "store"]
    assert store["schema"]["enum"] == ["main", "other"]


async def test_patterns_mean_the_same_in_every_language(server: Server) -> None:
    described = (await server.client.get("/api/v1/openapi.json")).json()
    patterns = set(patterns_in(described))
    assert patterns
    # to JavaScript, and so to JSON Schema, these are ASCII alone
    assert not [pattern for pattern in patterns if re.search(r"\\[wWdDsSbB]", pattern)]
    (named,) = patterns_in(described["components"]["schemas"]["JobSubmission"]["properties"]["name"])
    for name in ("größe", "¼/報告", "a.b:c/d-e_1"):
        assert re.search(named, name, re.ASCII)
        assert (await server.client.post("/api/v1/jobs", json={"name": name, "queue": name})).status_code == 201
    for name in ("", "a b", "-a", ".a", "a\nb", "a?", "a\\"):
        assert not re.search(named, name, re.ASCII)
        assert (await server.client.post("/api/v1/jobs", json={"name": name})).status_code == 422


def patterns_in(described: Any) -> Iterator[str]:
    if isinstance(described, dict):
        if isinstance(found := described.get("pattern"), str):
            yield found
        described = list(described.values())
    if isinstance(described, list):
        for each in described:
            yield from patterns_in(each)


class Running:
    """A real server, in a thread of its own."""

    def __init__(self, url: str, tokens: Tokens) -> None:
        self._up = threading.Event()
        self._tokens = tokens
        self._url = url
        self.base = ""
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._up.wait()

    async def _serve(self) -> None:
        options = WebOptions(rate=1e6, tokens="given")
        async with await ServedStores.open({"main": self._url}) as stores:
            app = wrapped(make_site(stores, options, tokens=self._tokens), options)
            config = uvicorn.Config(app, port=0, log_level="error", lifespan="off")
            self._server = server = uvicorn.Server(config)
            serving = asyncio.ensure_future(server.serve())
            while not server.started:
                await asyncio.sleep(0)
            self.base = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
            self._up.set()
            await serving

    def close(self) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Running, str]]:
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.add("ann", ["admin", "code"])
    found = Running(f"sqlite:///{tmp_path / 'jobs.db'}", tokens)
    yield found, secret
    found.close()


@pytest.mark.slow
def test_schemathesis_finds_nothing(running: tuple[Running, str]) -> None:
    import schemathesis
    from schemathesis.config import SchemathesisConfig
    from schemathesis.engine import events, from_schema

    server, secret = running
    config = SchemathesisConfig.from_dict(
        {
            "seed": 1,
            "headers": {"Authorization": f"Bearer {secret}"},
            "generation": {"max-examples": EXAMPLES, "database": "none"},
            "checks": {
                "positive_data_acceptance": {"expected-statuses": MAY_REFUSE},
                "negative_data_rejection": {"expected-statuses": REFUSES},
                "missing_required_header": {"expected-statuses": ["428"]},
            },
        }
    )
    schema = schemathesis.openapi.from_url(f"{server.base}/api/v1/openapi.json", config=config)
    # streams do not end, and have tests of their own
    schema = schema.exclude(operation_id_regex="^stream_")

    @schemathesis.hook("before_call")
    def nobody_waits(_: Any, case: Any, __: Any) -> None:
        with contextlib.suppress(InvalidInput, TypeError):
            if seconds((case.query or {}).get("wait"), field="wait"):
                case.query["wait"] = "1ms"

    asked, found = 0, []
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            asked += len(event.recorder.interactions)
            for case, checks in event.recorder.checks.items():
                found += [told(event, case, each) for each in checks if each.failure_info is not None]
        elif isinstance(event, events.NonFatalError | events.FatalError):
            found.append(str(event))
    assert not found, "\n\n".join(found[:10])
    assert asked > 1000


def told(event: Any, case: str, check: Any) -> str:
    response = event.recorder.interactions[case].response
    body = "" if response is None else f"{response.status_code} {response.content[:300]!r}"
    return f"{event.label} {check.name}: {check.failure_info.failure}\n{check.failure_info.code_sample}\n{body}"
