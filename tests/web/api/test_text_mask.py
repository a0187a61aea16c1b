"""What is masked in a payload is masked in everything that is told of the job: units, outputs, errors, events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstay import App, Outputs
from mainstay.control import Failure
from mainstay.model import ErrorInfo
from mainstay.stores import JobStore, Query
from mainstay.testing import Harness, a_job
from mainstay.web.api.masker import Masker
from mainstay.web.api.secret_search import secrets_of
from mainstay.web.api.text_mask import TextMask, with_masked_texts
from mainstay.web.security.tokens import Tokens
from tests.web.conftest import Server, serving

MASKER = Masker(("password", "api_key"))


class Lab:
    """A batch and a task that failed, and said in their errors what they were given."""

    def __init__(self, server: Server, reads: str, submits: str, *, batch: str, task: str, unit: str) -> None:
        self.server = server
        self.reads, self.submits = reads, submits
        self.batch, self.task, self.unit = batch, task, unit

    async def told(self, token: str = "") -> str:
        """All that a token that may read is told, wherever it asks."""
        found = []
        async with self.server.as_(token or self.reads) as client:
            for path in self.pages():
                answer = await client.get(path)
                assert answer.status_code == 200, (path, answer.text)
                found.append(f"{path}: {answer.text}")
        return "\n".join(found)

    def pages(self) -> list[str]:
        jobs = [f"/api/v1/jobs/{each}" for each in (self.batch, self.task, self.unit)]
        parts = [
            "",
            "/events",
            "/explain",
            "/story",
            "/result",
            "/units?payload=true",
            "/stream",
            "/stream?payload=true",
        ]
        return [
            *(job + part for job in jobs for part in parts),
            *(f"/api/v1/jobs/{self.batch}/{part}" for part in ("batch", "report", "map", "outputs")),
            *("/api/v1/jobs?payload=true", "/api/v1/snapshot", f"/api/v1/jobs?parent={self.batch}"),
            *("/", "/jobs", "/workers", "/batches", f"/batches/{self.batch}"),
            *(f"/jobs/{each}" for each in (self.batch, self.task, self.unit)),
            f"/jobs?parent={self.batch}",
        ]


@asynccontextmanager
async def lab_of(tmp_path: Path, **options: Any) -> AsyncIterator[Lab]:
    app = App("memory:", outputs=f"file://{tmp_path / 'outputs'}?sync=off")

    @app.batch(name="study", outputs={"result": "result.txt"}, version="1", retries=0)
    def study(params: dict[str, Any], seed: int, out: Outputs) -> None:
        if params["beta"] > 0.1:
            raise ValueError(f"{params['api_key']} is refused")
        out.save("result", b"done")

    @app.task(name="login", retries=0)
    def login(password: str) -> None:
        raise ValueError(f"cannot log in with {password}")

    async with Harness(app) as box:
        sets = [{"api_key": f"hush_{n}", "beta": n / 10, "zeta": f"open{n}sea"} for n in (1, 2)]
        batch = (await app.submit_batch(study, params=sets, seeds=1)).id
        task = (await login.submit("hush_3")).id
        await box.drain()
        found = await box.store.find(Query(parent=batch, status=("failed",)), limit=1)
        tokens = Tokens(tmp_path / "tokens.json")
        reads, submits = tokens.add("eye", ["read"]), tokens.add("hand", ["operate"])
        async with serving(store=box.store, tokens=tokens, **options) as server:
            yield Lab(server, reads, submits, batch=batch, task=task, unit=found.jobs[0].id)


def found_in(text: str, what: str) -> list[str]:
    """Where it stands, to be read in a failure."""
    return re.findall(f".{{0,80}}(?:{what}).{{0,40}}", text)


async def test_what_is_masked_is_told_nowhere(tmp_path: Path) -> None:
    async with lab_of(tmp_path) as lab:
        told = await lab.told()
        assert found_in(told, "hush") == []
        assert "cannot log in with ***" in told
        assert "*** is refused" in told
        # only what is masked is
        assert "open1sea" in told
        assert "<code>api_key=***-s0</code>" in told


async def test_where_no_payloads_are_shown_neither_are_parameters_and_error_texts(tmp_path: Path) -> None:
    async with lab_of(tmp_path, show_payloads=False) as lab:
        told = await lab.told()
        assert found_in(told, "hush|open.sea|beta=0") == []
        assert "is refused" not in told
        assert "Traceback (most" not in told
        assert "ValueError: ***" in told


async def test_a_program_that_submits_is_told_its_error_in_full(tmp_path: Path) -> None:
    async with lab_of(tmp_path) as lab, lab.server.as_(lab.submits) as client:
        ended = (await client.get(f"/api/v1/jobs/{lab.task}/result")).json()
        assert (ended["shown"], ended["error"]["message"]) == ("whole", "cannot log in with hush_3")


async def test_a_preview_of_what_would_be_done_masks_as_well(tmp_path: Path) -> None:
    async with lab_of(tmp_path) as lab, lab.server.as_(lab.submits) as client:
        dry = await client.post(f"/api/v1/jobs/{lab.batch}/resume", json={"dry_run": True})
        assert [one["unit"] for one in dry.json()["sample"]] == ["api_key=***-s0"]
        page = await client.get("/jobs/bulk?all=matching&action=retry")
        assert "login" in page.text
        assert "hush" not in page.text


async def test_a_search_finds_what_is_shown_and_nothing_by_a_masked_value(tmp_path: Path) -> None:
    async with lab_of(tmp_path) as lab, lab.server.as_(lab.reads) as client:
        shown = (await client.get(f"/api/v1/jobs/{lab.task}")).json()["error"]["message"]
        assert "***" in shown
        plain = next(word for word in shown.split() if word.isalpha())

        async def found(text: str, limit: int = 50) -> tuple[Any, ...]:
            page = (await client.get("/api/v1/jobs", params={"text": text, "limit": limit})).json()
            html = (await client.get("/jobs", params={"text": text})).text
            return [job["id"] for job in page["jobs"]], page["next"], page["finished"], lab.task in html

        assert await found(plain) == ([lab.task], None, True, True)
        # letter by letter: the answer is that of a text that no job has
        none = await found("no job has this")
        assert none == ([], None, True, False)
        for end in (3, 4):
            for limit in (1, 50):
                assert await found("hush"[:end], limit) == none

        async def query(_: JobStore) -> Query:
            return Query(text="hush")

        lists = lab.server.site.hub.lists("main")
        async with asyncio.timeout(60), lists.follow(b"hush", query, 50) as listed:
            while not listed.at_ms:
                await listed.changed.wait()
        assert listed.jobs == []


async def test_the_password_of_a_url_is_told_nowhere() -> None:
    url = "https://bob:pa55%21word@example.org/feed"
    async with serving() as server:
        control = server.control
        made = await control.jobs.submit("fetch", {"feed": url, "all": [url, 1]}, retries=0)
        session = await control.claims.open_session(worker="w")
        (job,) = await control.claims.claim(["default"], session.id, 1)
        error = ErrorInfo(type="HTTPError", message=f"401 for {url}", traceback=f"get({url!r})\nsent pa55!word")
        await control.attempts.fail([Failure(job, error)])
        server.site.hub.nudge("main")
        pages = ["/api/v1/jobs?payload=true", "/jobs", "/", f"/jobs/{made.id}", f"/api/v1/jobs/{made.id}"]
        pages += [f"/api/v1/jobs/{made.id}/{part}" for part in ("events", "explain", "story", "stream?payload=true")]
        told = {path: (await server.client.get(path)).text for path in pages}
        async with asyncio.timeout(60), aclosing(server.site.hub.subscribe("main")) as snapshots:
            async for snapshot in snapshots:
                if causes := snapshot.failures.causes:
                    break
    assert [path for path, text in told.items() if "pa55" in text] == []
    assert "https://bob:***@example.org/feed" in told["/api/v1/jobs?payload=true"]
    assert causes[0].message == "401 for https://bob:***@example.org/feed"


def test_a_value_is_found_however_a_message_writes_it() -> None:
    secret = "two\nlines quoted"
    job = a_job("failed", payload=msgspec.msgpack.encode({"a": [{"password": [secret, 12345, b"raw!"]}], "x": "two "}))
    veil = TextMask(MASKER, secrets_of(MASKER, job))
    assert veil.text(f"{secret} {secret!r} 12345 {b'raw!'!r} two ") == "*** '***' *** b'***' two "


def test_what_is_short_is_not_looked_for_in_texts() -> None:
    job = a_job("failed", payload=msgspec.msgpack.encode({"password": "abc"}), reason="abcd is not abc")
    assert with_masked_texts(job, MASKER, secrets_of(MASKER, job)).reason == "abcd is not abc"


def test_a_payload_that_cannot_be_read_hides_no_error() -> None:
    job = a_job("failed", payload=b"\xc1", reason="why")
    assert with_masked_texts(job, MASKER, secrets_of(MASKER, job)).reason == "why"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("beta=0.2-s0", "beta=0.2-s0"),
        ("alpha=1_api_key=a_b=c-s0", "alpha=1_api_key=***-s0"),
        ("auth=-api_key-sk1-_beta=2-s-7", "auth=-api_key-***-s-7"),
        (
            "v1/study/0e/dbPassword=x-s0-0efc5d403da3ad1fc19f/out.txt",
            "v1/study/0e/dbPassword=***-s0-0efc5d403da3ad1fc19f/out.txt",
        ),
        ("driver 1", "driver 1"),
        ("password=cut", "password=***"),
    ],
)
def test_names_of_units_and_paths_of_outputs_lose_what_may_be_a_secret(name: str, shown: str) -> None:
    assert MASKER.unit(name) == shown
