"""Every operation is asked for without a token, with one that is too weak, and with one that will do."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from mainstay.web.api.operation import ApiOperation
from mainstay.web.api.routes import PREFIX, operations
from mainstay.web.caller import SCOPES, Caller
from mainstay.web.live.streams import OPERATIONS as STREAMS
from mainstay.web.security.tokens import Tokens
from tests.web.conftest import serving

#: of the web package itself and of every kind of job
OPERATIONS = operations()

NOBODY = "018bcfe5-6800-7000-8000-0123456789ab"
#: streams do not end, so of those only the refusals are looked at
ALL = (*OPERATIONS, *STREAMS)

NEEDS = {
    "submit_group": "submit",
    "submit_job": "submit",
    "submit_jobs": "submit",
    "force_job": "admin",
    "delete_job": "admin",
    "purge_queue": "admin",
    "drop_schedule": "admin",
    "check_placement": "code",
    "submit_run": "code",
    "list_missing_parts": "code",
    "put_bundle_part": "code",
    "begin_bundle": "code",
    "publish_bundle": "code",
}


async def ask(client: httpx.AsyncClient, operation: ApiOperation) -> httpx.Response:
    path = operation.path.replace("{id}", NOBODY).replace("{name}", "mail")
    return await client.request(operation.method, PREFIX + path)


def test_reading_needs_read_and_changing_needs_more() -> None:
    for operation in ALL:
        usual = "read" if operation.method == "GET" else "operate"
        assert operation.scope == NEEDS.get(operation.id, usual), operation.id


@pytest.mark.parametrize("operation", ALL, ids=lambda each: each.id)
async def test_nobody_is_let_in_with_less_than_an_operation_needs(operation: ApiOperation, tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    secrets = {scope: tokens.add(scope, [scope]) for scope in SCOPES}
    async with serving(tokens=tokens) as server:
        async with server.as_(None) as stranger:
            assert (await ask(stranger, operation)).status_code == 401
        async with server.as_("mst_wrong") as stranger:
            assert (await ask(stranger, operation)).status_code == 401
        for scope in SCOPES:
            enough = Caller(name=scope, scopes=(scope,)).may(operation.scope)
            if enough and operation in STREAMS:
                continue
            async with server.as_(secrets[scope]) as caller:
                answer = await ask(caller, operation)
            assert (answer.status_code in (401, 403)) is not enough, (scope, answer.text)
            if not enough:
                assert (answer.status_code, answer.json()["type"]) == (403, "scope_needed")


async def test_deleting_many_needs_what_deleting_one_needs(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.add("ann", ["operate"])
    async with serving(tokens=tokens) as server, server.as_(secret) as ann:
        made = await server.control.jobs.submit("a")
        for action, status in (("delete", 403), ("cancel", 200)):
            body = {"action": action, "ids": [made.id]}
            assert (await ann.post(f"{PREFIX}/jobs/actions", json=body)).status_code == status
        assert (await server.control.jobs.get(made.id)).status == "cancelled"
        assert (await server.control.jobs.events(made.id))[-1].actor == "web:ann"


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.id)
async def test_a_server_that_only_shows_changes_nothing(operation: ApiOperation) -> None:
    async with serving(read_only=True) as server:
        answer = await ask(server.client, operation)
        assert (answer.status_code == 403) is (operation.scope != "read")
