"""The pages as they are rendered: what is on them, what is not, and what they refuse."""

from __future__ import annotations

import re
from contextlib import aclosing
from html import unescape
from pathlib import Path

import msgspec
import pytest

from mainstay.control import Control, Failure, JobRequest
from mainstay.control.schedules import register, schedule
from mainstay.errors import MainstayError
from mainstay.model import Job, Offer
from mainstay.web.security.tokens import Tokens
from tests.web.conftest import Server, serving
from tests.web.live.test_metrics import looked

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
PAGES = ("/", "/jobs", "/queues", "/workers", "/schedules", "/batches", "/loads")


async def failed(control: Control, message: str = "no answer", **options: object) -> Job:
    """A job that was given up."""
    made = await control.jobs.submit("mail.send", {"to": "ann"}, queue="mail", retries=0, **options)
    session = await control.claims.open_session(worker="w")
    (job,) = await control.claims.claim(["mail"], session.id, 1)
    await control.claims.start([job])
    await control.attempts.fail([Failure(job, OSError(message))])
    return await control.jobs.get(made.id)


async def text_of(server: Server, path: str, status: int = 200) -> str:
    answer = await server.client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text


def rows(text: str) -> list[str]:
    """The ids of the jobs that a page lists."""
    return re.findall(r'id="row-([0-9a-f-]{36})"', text)


async def test_every_page_is_there_when_there_is_nothing_to_show(server: Server) -> None:
    for path in PAGES:
        assert "<main" in await text_of(server, path)


async def test_no_page_has_inline_script_or_style_or_names_another_host(server: Server) -> None:
    job = await failed(server.control)
    await register(server.control, [schedule("sums", "1h", "report.sums")])
    for path in (*PAGES, f"/jobs/{job.id}", "/jobs/bulk?all=matching&action=retry&queue=mail", "/nowhere"):
        text = (await server.client.get(path)).text
        assert re.findall(r"<script(?! src=\"/static/)", text) == []
        assert re.findall(r"<style|\sstyle=|\son[a-z]+=|javascript:", text) == []
        assert re.findall(r'(?:src|href|action)="(?:https?:)?//', text) == []


async def test_what_others_wrote_is_text_and_never_markup(server: Server) -> None:
    control = server.control
    job = await failed(control, EVIL, tags=[EVIL[:90]], metadata={"note": EVIL}, key=EVIL)
    await control.jobs.submit("t", {EVIL: [EVIL]}, queue="other")
    await control.operations.pause("mail", reason=EVIL)
    server.site.hub.nudge("main")
    for path in (*PAGES, f"/jobs/{job.id}", "/jobs?text=%3Cscript%3E", f"/jobs?queue={'x' * 50}%22%3E%3Cb%3E"):
        text = (await server.client.get(path)).text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "<b>" not in text.split("queue=")[-1][:60]


async def test_the_numbers_above_the_charts_are_those_of_the_states_below(server: Server) -> None:
    hub = server.site.hub
    async with aclosing(hub.subscribe("main")) as snapshots:
        await anext(snapshots)
        await server.control.jobs.submit_many(JobRequest("t", n, {}) for n in range(7))
        hub.nudge("main")
        # sooner than the next sample of the history
        while (await anext(snapshots)).waiting != 7:
            pass
    text = await text_of(server, "/")
    assert re.findall(r'class="figure">(\S+) <small>job', text) == ["7", "0"]


async def test_the_overview_says_what_comes_in_and_of_which_time_its_curves_are(server: Server) -> None:
    await server.control.jobs.submit_many(JobRequest("t", n, {}) for n in range(10))
    await looked(server)
    text = await text_of(server, "/")
    assert re.findall(r"<h2>Submitted</h2>\s*<p class=\"figure\">(\S+) <small>a minute", text) == ["60"]
    assert "Curves show the last 10 minutes" in text


async def test_filters_are_in_the_url_and_narrow_the_list(server: Server) -> None:
    control = server.control
    one = await control.jobs.submit("a.one", queue="mail", tags=["x"])
    two = await control.jobs.submit("b.two", queue="other")
    assert rows(await text_of(server, "/jobs")) == [two.id, one.id]
    assert rows(await text_of(server, "/jobs?order=oldest")) == [one.id, two.id]
    for query in ("queue=mail", "name=a.one", "tag=x", "text=a.o", "queue=mail&status=pending&status=running"):
        assert rows(await text_of(server, f"/jobs?{query}&newer_than=&older_than=")) == [one.id], query


async def test_an_id_that_is_searched_for_leads_to_its_job(server: Server) -> None:
    made = await server.control.jobs.submit("a.one")
    answer = await server.client.get(f"/jobs?text={made.id}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{made.id}")


async def test_pages_of_a_list_follow_each_other_without_gap_or_overlap(server: Server) -> None:
    made = await server.control.jobs.submit_many(JobRequest("t", n, {"queue": "q"}) for n in range(120))
    seen: list[str] = []
    path = "/jobs?queue=q"
    while path:
        text = await text_of(server, path)
        seen += rows(text)
        found = re.search(r'rel="next" href="([^"]+)"', text)
        path = unescape(found[1]) if found else ""
    assert seen == [each.id for each in reversed(made)]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("status=runing", "did you mean &#39;running&#39;"),
        ("newer_than=soon", "newer_than"),
        ("nonsense=1", "nonsense"),
        ("cursor=abc", "cursor"),
        ("store=elsewhere", "there is no store"),
    ],
)
async def test_a_url_that_makes_no_sense_is_refused_with_the_field_named(server: Server, query: str, said: str) -> None:
    assert said in await text_of(server, f"/jobs?{query}", 422)


async def test_a_story_tells_events_attempts_and_the_way_and_masks_what_is_secret(server: Server) -> None:
    control = server.control
    made = await control.jobs.submit("mail.send", {"to": "ann", "password": "hush"}, queue="mail", retries=0)
    session = await control.claims.open_session(worker="w")
    jobs = await control.claims.claim(["mail"], session.id, 1)
    await control.claims.start(jobs)
    await control.attempts.fail([Failure(jobs[0], OSError("no answer"))])
    text = await text_of(server, f"/jobs/{made.id}")
    assert "hush" not in text
    assert "***" in text
    assert "gave up after 1 failed attempt" in text
    assert re.search(r'class="did" d="[^"]+"', text)
    assert "It was pending, then running, then failed, then quarantined." in text


async def test_what_cannot_be_read_is_not_shown_as_bytes_and_metadata_is_masked(server: Server) -> None:
    sealed = msgspec.Raw(msgspec.msgpack.encode(msgspec.msgpack.Ext(77, b"password: hunter2")))
    made = await server.control.jobs.submit("mail.send", sealed, metadata={"order": "17", "api_key": "hush"})
    text = await text_of(server, f"/jobs/{made.id}")
    assert "undecodable" in text
    assert b"hunter2".hex() not in text
    assert "<dd>17</dd>" in text
    assert "hush" not in text


async def test_payloads_are_not_shown_where_they_may_not_be() -> None:
    async with serving(show_payloads=False) as server:
        made = await server.control.jobs.submit("mail.send", {"to": "ann"})
        assert "Payload" not in await text_of(server, f"/jobs/{made.id}")


async def test_buttons_are_there_for_what_can_be_done_and_by_whom() -> None:
    async with serving() as server:
        job = await failed(server.control)
        buttons = set(re.findall(r'data-opens="(\w+)"', await text_of(server, f"/jobs/{job.id}")))
        assert buttons == {"help", "retry", "cancel", "force"}
    async with serving(read_only=True) as server:
        job = await failed(server.control)
        assert set(re.findall(r'data-opens="(\w+)"', await text_of(server, f"/jobs/{job.id}"))) == {"help"}


async def test_a_deleted_job_tells_by_whom(server: Server) -> None:
    job = await failed(server.control)
    await server.control.operations.delete(job.id, actor="ann", reason="not needed")
    assert "It was deleted by ann" in await text_of(server, f"/jobs/{job.id}", 410)


async def test_a_job_that_never_was_is_not_found(server: Server) -> None:
    assert "018bcfe5" in await text_of(server, "/jobs/018bcfe5-6800-7000-8000-0123456789ab", 404)


async def test_a_preview_does_nothing_and_what_is_confirmed_is_what_it_showed(server: Server) -> None:
    control = server.control
    made = await control.jobs.submit_many(JobRequest("t", n, {"queue": "q"}) for n in range(25))
    text = await text_of(server, "/jobs/bulk?all=matching&action=cancel&queue=q")
    assert "Cancel ALL 25 jobs that match?" in text
    assert rows(text) == [each.id for each in made[:10]]
    assert (await control.jobs.get(made[0].id)).status == "pending"
    body = re.search(r'data-body="([^"]+)"', text)
    assert body is not None
    seen_ms = server.stores.first.store.clock.now_ms()
    while server.stores.first.store.clock.now_ms() <= seen_ms:
        pass  # the next millisecond is after the look
    later = await control.jobs.submit("t", queue="q")
    answer = await server.client.post(
        "/api/v1/jobs/actions", content=unescape(body[1]), headers={"Content-Type": "application/json"}
    )
    assert answer.json()["done"] == 25
    assert (await control.jobs.get(later.id)).status == "pending"


async def test_what_comes_to_match_after_a_preview_is_not_meant(server: Server) -> None:
    control = server.control
    seen = [await failed(control), await failed(control)]
    later = await control.jobs.submit("mail.send", queue="mail")
    text = await text_of(server, "/jobs/bulk?all=matching&action=retry&queue=mail")
    body = re.search(r'data-body="([^"]+)"', text)
    assert body is not None
    await control.operations.force(later.id, "failed", actor="t", reason="for the test")
    answer = await server.client.post(
        "/api/v1/jobs/actions", content=unescape(body[1]), headers={"Content-Type": "application/json"}
    )
    assert answer.json()["done"] == 2
    assert {(await control.jobs.get(job.id)).status for job in seen} == {"pending"}
    assert (await control.jobs.get(later.id)).status == "failed"


async def test_a_preview_of_those_chosen_names_only_these(server: Server) -> None:
    made = await server.control.jobs.submit_many(JobRequest("t", n, {"queue": "q"}) for n in range(3))
    text = await text_of(server, f"/jobs/bulk?action=cancel&queue=q&id={made[1].id}")
    assert rows(text) == [made[1].id]


async def test_a_preview_of_what_cannot_be_done_is_refused(server: Server) -> None:
    assert "action" in await text_of(server, "/jobs/bulk?action=explode", 422)
    for wanted in ("action=cancel", "action=cancel&queue=q", "action=cancel&all=", "action=cancel&all=yes"):
        assert "no job is selected" in await text_of(server, f"/jobs/bulk?{wanted}", 422)
    assert "status" in await text_of(server, "/jobs/bulk?all=matching&action=retry&status=succeeded", 422)


async def test_each_store_has_its_own_pages_and_links_stay_with_it(tmp_path: Path) -> None:
    async with serving({"main": "memory:", "crm": f"sqlite:///{tmp_path / 'crm.db'}"}) as server:
        made = await server.stores.find("crm").control.jobs.submit("crm.call")
        assert rows(await text_of(server, "/jobs")) == []
        text = await text_of(server, "/jobs?store=crm")
        assert rows(text) == [made.id]
        assert f'href="/jobs/{made.id}?store=crm"' in text
        assert 'href="/queues?store=crm"' in text


async def test_states_are_counted_in_what_the_filter_names_or_not_at_all(server: Server) -> None:
    for queue, times in (("mail", 1), ("pay", 2)):
        for _ in range(times):
            await server.control.jobs.submit("a", queue=queue)
    await looked(server)
    for query, told in (
        ("", ["3"]),
        ("?queue=mail", ["1"]),
        ("?queue=pay&status=failed", ["2"]),
        ("?queue=pay&name=a", []),
    ):
        chips = re.findall(r'<label class="chip">.*?</label>', await text_of(server, f"/jobs{query}"), re.DOTALL)
        assert [n for chip in chips for n in re.findall(r"<b>(\d+)</b>", chip)] == told, query


async def test_whoever_is_not_signed_in_is_sent_to_do_that_and_back(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.add("ann", ["read"])
    async with serving(tokens=tokens) as server:
        answer = await server.client.get("/jobs?queue=mail")
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fjobs%3Fqueue%3Dmail")
        partial = await server.client.get("/jobs?queue=mail", headers={"HX-Request": "true"})
        assert (partial.status_code, partial.headers["hx-redirect"]) == (401, "/login?next=%2Fjobs%3Fqueue%3Dmail")


async def test_a_reader_sees_no_buttons_that_change_anything(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.add("bob", ["read"])
    async with serving(tokens=tokens) as server:
        job = await failed(server.control)
        async with server.as_(secret) as reader:
            text = (await reader.get(f"/jobs/{job.id}")).text
            assert set(re.findall(r'data-opens="(\w+)"', text)) == {"help"}
            assert (await reader.get("/jobs/bulk?all=matching&action=retry&queue=mail")).status_code == 403


async def test_the_overview_says_when_the_store_does_not_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone() -> None:
        raise MainstayError("the disk is gone")

    store = server.stores.first.store
    async with aclosing(server.site.hub.subscribe("main")) as snapshots:
        monkeypatch.setattr(store, "stats", gone)
        server.site.hub.nudge("main")
        async for snapshot in snapshots:
            if not snapshot.up:
                break
    text = await text_of(server, "/")
    assert "The store does not answer." in text
    assert "the disk is gone" in text


async def test_the_overview_names_the_queues_that_need_somebody(server: Server) -> None:
    control, hub = server.control, server.site.hub
    await control.jobs.submit_many(JobRequest("t", n, {"queue": "deep"}) for n in range(7))
    await control.jobs.submit("t", queue="shallow")
    await control.operations.pause("stopped", reason="the disk is full")
    async with aclosing(hub.subscribe("main")) as snapshots:
        hub.nudge("main")
        async for snapshot in snapshots:
            if snapshot.waiting == 8 and any(queue.paused for queue in snapshot.queues):
                break
    text = await text_of(server, "/")
    assert re.findall(r'href="/jobs\?queue=(\w+)" data-open', text) == ["stopped", "deep", "shallow"]
    assert "the disk is full" in text


async def test_pages_say_which_jobs_no_worker_takes_and_which_queues_workers_serve(server: Server) -> None:
    await server.control.jobs.submit("a", queue="night")
    offer = Offer(queues=("mail", "default"), tasks={"a": {}})
    await server.control.claims.open_session(worker="w-1", offer=offer)
    async with aclosing(server.site.hub.subscribe("main")) as snapshots:
        while not (await anext(snapshots)).unserved:
            pass
    told = "no live worker listens on queue night: 1 job waits"
    assert told in await text_of(server, "/")
    workers = await text_of(server, "/workers")
    assert told in workers
    assert "mail, default" in workers
