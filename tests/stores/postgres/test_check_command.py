"""`mainstay check` on PostgreSQL, while jobs are held whose claims have no event yet."""

from __future__ import annotations

import asyncio
import json

import psycopg
import pytest
from typer.testing import CliRunner, Result

from mainstay.cli import app
from mainstay.control import Completion, Control
from mainstay.stores import Query, open_store


@pytest.fixture
def session(postgres_url: str) -> str:
    """A session that holds two of three jobs."""

    async def make() -> str:
        store = await open_store(postgres_url)
        control = Control(store)
        for n in range(3):
            await control.jobs.submit("mail.send", {"n": n})
        session = (await control.claims.open_session(lease_s=600)).id
        jobs = await control.claims.claim(["default"], session, 2)
        await control.claims.start(jobs[:1])
        await store.close()
        return session

    return asyncio.run(make())


def run(url: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["check", "--store", url, *words], catch_exceptions=False, env={"COLUMNS": "200"})


def test_open_claims_are_all_fine(postgres_url: str, session: str) -> None:
    done = run(postgres_url)
    assert (done.exit_code, done.stdout.startswith("clean; 3 rows checked")) == (0, True), done.output


def test_a_damaged_open_claim_is_mended_and_its_holder_can_still_end_it(postgres_url: str, session: str) -> None:
    server, _, options = postgres_url.partition("?")
    schema = options.split("&")[0].removeprefix("schema=")
    with psycopg.connect(server) as db:
        db.execute(f"UPDATE {schema}.jobs SET priority = 999 WHERE open")  # type: ignore[arg-type]

    found = run(postgres_url, "--json")
    assert found.exit_code == 1
    assert {each["code"] for each in json.loads(found.stdout)["violations"]} == {"submit_changed"}
    assert run(postgres_url, "--repair").exit_code == 0
    assert run(postgres_url).exit_code == 0

    async def end() -> list[str]:
        store = await open_store(postgres_url)
        held = (await store.find(Query(session=session))).jobs
        answers = await Control(store).attempts.complete([Completion(job) for job in held])
        await store.close()
        return [answer.outcome for answer in answers]

    assert asyncio.run(end()) == ["applied", "applied"]
    assert run(postgres_url).exit_code == 0
