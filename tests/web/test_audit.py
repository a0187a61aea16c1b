"""The audit log: what was done, by whom, to what; what was only looked at; and what was refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainstay.stores.memory import MemoryStore
from mainstay.web.security.tokens import Tokens
from tests.web.conftest import Server, serving

Lines = Callable[[], list[str]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """Those that were written since they were last asked for."""
    caplog.set_level(logging.INFO, logger="mainstay.web.audit")

    def found() -> list[str]:
        told = [record.getMessage() for record in caplog.records if record.name == "mainstay.web.audit"]
        caplog.clear()
        return told

    return found


async def test_a_limit_is_logged_with_its_key_and_value(server: Server, lines: Lines) -> None:
    await server.client.post("/api/v1/limits", json={"key": "api", "limit": 3})
    await server.client.post("/api/v1/limits", json={"key": "api", "limit": None})

    began = "did=set_limit actor=web:local store=main path=/api/v1/limits key=api"
    assert lines() == [f"{began} limit=3", f"{began} limit=null"]


async def test_what_is_done_to_many_is_logged_with_which_how_many_and_why(server: Server, lines: Lines) -> None:
    ids = [(await server.control.jobs.submit("send", queue="mail")).id for _ in range(7)]
    wanted = {"action": "cancel", "filter": {"queue": "mail"}, "limit": 3, "reason": "too late"}

    await server.client.post("/api/v1/jobs/actions", json={**wanted, "dry_run": True})
    await server.client.post("/api/v1/jobs/actions", json=wanted)
    await server.client.post("/api/v1/jobs/actions", json={"action": "cancel", "ids": ids})

    said = 'actor=web:local store=main path=/api/v1/jobs/actions action=cancel filter={"queue":"mail"}'
    looked, did, named = lines()
    assert looked.startswith(f"would=act_on_jobs {said}")
    assert did.startswith(f"did=act_on_jobs {said}")
    for line, end in (
        (looked, ["dry_run=true", "matched=3", "done=0", "refused=0"]),
        (did, ["dry_run=false", "matched=3", "done=3", "refused=0"]),
        (named, ["ids=7", "dry_run=false", "matched=7", "done=7", "refused=0"]),
    ):
        assert set(end) <= set(line.split())
    assert 'limit=3 reason="too late"' in did
    assert (ids[0] in named, ids[-1] in named) == (True, False)


async def test_a_purge_that_only_looks_is_not_logged_as_done(server: Server, lines: Lines) -> None:
    await server.control.jobs.submit("send", queue="mail")

    await server.client.post("/api/v1/queues/mail/purge", json={"dry_run": True})
    await server.client.post("/api/v1/queues/mail/purge", json={"delete": True})

    looked, did = lines()
    assert looked.startswith("would=purge_queue ")
    assert "matched=1 done=0" in looked
    assert did.startswith("did=purge_queue ")
    assert "action=delete" in did
    assert "matched=1 done=1" in did


async def test_what_is_done_to_one_job_is_logged_with_its_value_and_reason(server: Server, lines: Lines) -> None:
    job = f"/api/v1/jobs/{(await server.control.jobs.submit('send')).id}"

    await server.client.post(f"{job}/priority", json={"priority": 7})
    await server.client.delete(job, params={"reason": "a mistake"}, headers={"If-Match": "*"})

    moved, gone = lines()
    assert moved.endswith(f"path={job}/priority priority=7")
    assert gone.startswith("did=delete_job ")
    assert 'reason="a mistake"' in gone


async def test_what_somebody_typed_cannot_look_like_another_field_or_line(server: Server, lines: Lines) -> None:
    await server.client.post("/api/v1/queues/mail/pause", json={"reason": 'x" actor=web:ann \u2192'})
    await server.client.post("/api/v1/queues/a%20did=b/pause")

    paused, other = lines()
    assert paused.endswith(r'reason="x\" actor=web:ann \u2192"')
    assert r'path="/api/v1/queues/a did=b/pause"' in other


async def test_what_an_operator_is_refused_is_logged(tmp_path: Path, lines: Lines) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    reader, operator = tokens.add("ann", ["read"]), tokens.add("ben", ["operate"])
    async with serving(tokens=tokens) as server:
        for token in (None, "mst_guessed", reader, operator):
            async with server.as_(token) as client:
                await client.post("/api/v1/queues/mail/resume")
                await client.get("/api/v1/queues")
        async with server.as_(operator) as client:
            await client.post("/api/v1/jobs/actions", json={"action": "delete", "filter": {"queue": "mail"}})

    began, where = "refused=resume_queue actor=", "path=/api/v1/queues/mail/resume"
    *attempts, bulk = lines()
    assert attempts == [
        f"{began}- {where} status=401 code=token_needed client=127.0.0.1",
        f"{began}- {where} status=401 code=token_refused client=127.0.0.1",
        f"{began}web:ann {where} status=403 code=scope_needed client=127.0.0.1",
        f"{began}web:ben store=main {where} status=404 code=queue_not_found client=127.0.0.1",
    ]
    assert bulk.startswith("refused=act_on_jobs actor=web:ben store=main ")
    assert "action=delete" in bulk


async def test_what_failed_is_logged_for_it_may_have_been_done(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    async with serving(store=(store := MemoryStore())) as server:
        monkeypatch.setattr(store, "set_limit", breaks)
        await server.client.post("/api/v1/limits", json={"key": "api", "limit": 3})

    (line,) = lines()
    assert line.startswith("failed=set_limit actor=web:local store=main path=/api/v1/limits key=api limit=3 status=500")
    assert not caplog.records


async def test_sign_ins_and_sign_outs_are_logged_without_the_token(tmp_path: Path, lines: Lines) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.add("ann", ["read"])
    async with serving(tokens=tokens) as server, server.as_(None) as browser:
        await browser.post("/login", data={"token": "mst_guessed"})
        await browser.post("/login", data={"token": secret})
        (cookie,) = browser.cookies.values()
        session = server.site.guard.sessions.read(cookie.strip('"'))
        assert session is not None
        await browser.post("/logout", data={"csrf_token": server.site.guard.sessions.csrf_token(session)})

    assert lines() == [
        "refused=sign_in actor=- client=127.0.0.1",
        "did=sign_in actor=web:ann client=127.0.0.1",
        "did=sign_out actor=web:ann client=127.0.0.1",
    ]


async def test_only_an_operator_or_its_submitter_replaces_a_job_and_that_is_logged(
    tmp_path: Path, lines: Lines
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    boss, ann, eve = (
        tokens.add(name, [scope]) for name, scope in (("boss", "operate"), ("ann", "submit"), ("eve", "submit"))
    )
    wanted = {"name": "pay.out", "unique": "payout-7", "on_clash": "replace", "payload": {"to": "x"}}
    async with serving(tokens=tokens) as server:

        async def submits(token: str) -> tuple[int, dict[str, Any]]:
            async with server.as_(token) as client:
                answer = await client.post("/api/v1/jobs", json=wanted)
            return answer.status_code, answer.json()

        _, first = await submits(ann)
        assert lines() == []

        status, refused = await submits(eve)
        assert (status, refused["type"], refused["needed"]) == (403, "scope_needed", "operate")
        assert (await server.control.jobs.get(first["id"])).status == "pending"
        (line,) = lines()
        assert line.startswith(
            f"refused=replace_job actor=web:eve store=main path=/api/v1/jobs id={first['id']} status=403"
        )

        status, second = await submits(ann)
        assert (status, second["created"]) == (201, True)
        assert (await server.control.jobs.get(first["id"])).status == "cancelled"
        assert lines() == [
            f"did=replace_job actor=web:ann store=main path=/api/v1/jobs id={first['id']} by={second['id']}"
        ]

        status, third = await submits(boss)
        assert status == 201
        assert (await server.control.jobs.get(second["id"])).reason == f"replaced by {third['id']}"
        (line,) = lines()
        assert line.startswith("did=replace_job actor=web:boss")

        inside = await server.control.jobs.submit("pay.in", unique="in-7")
        wanted |= {"name": "pay.in", "unique": "in-7"}
        assert (await submits(ann))[0] == 403, "a job of the program itself"
        assert (await server.control.jobs.get(inside.id)).status == "pending"
