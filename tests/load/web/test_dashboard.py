"""The dashboard pages of load tests: the list of runs, one run, and two runs side by side."""

from __future__ import annotations

import re

import msgspec
import pytest

from mainstay.control import Completion
from mainstay.load.handler import stored
from mainstay.load.report.words import time_text
from mainstay.load.stats.model import Verdict
from tests.load.report.runs import a_summary, a_tag, an_open_summary, latency
from tests.web.conftest import Server
from tests.web.dashboard.test_pages import EVIL, text_of


async def test_what_a_load_test_calls_its_parts_is_text_in_its_charts_too(server: Server) -> None:
    control = server.control
    session = await control.claims.open_session(worker="w")
    plain = a_summary(count=200, stream="", errors={EVIL: 3})
    steps = [msgspec.structs.replace(one, step=f"{one.step}{EVIL}") for one in plain.steps]
    thresholds = [msgspec.structs.replace(one, text=EVIL) for one in plain.thresholds]
    tags = [a_tag(EVIL, EVIL, [0.1] * 5)]
    summary = msgspec.structs.replace(plain, steps=steps, thresholds=thresholds, by_tag=tags)
    made = []
    for _ in range(2):
        made.append((await control.jobs.submit("Shop", kind="load", queue="loads", retries=0)).id)
        jobs = await control.claims.claim(["loads"], session.id, 1)
        await control.claims.start(jobs)
        await control.attempts.complete([Completion(jobs[0], result=msgspec.Raw(stored(summary)))])
    for path in ("/loads", f"/loads/{made[0]}", f"/jobs/{made[0]}?raw=1", f"/loads/compare?a={made[0]}&b={made[1]}"):
        text = await text_of(server, path)
        assert "<script>alert" not in text
        assert "<img" not in text
        assert ("<h2>Tags</h2>" in text) == (path == f"/loads/{made[0]}")
    assert "alert(1)" in text


@pytest.mark.parametrize(
    ("verdict", "state"), [("passed", "good"), ("interrupted", "busy"), ("failed", "bad"), ("lost", "bad")]
)
async def test_the_list_of_load_tests_has_the_verdict_of_each(server: Server, verdict: Verdict, state: str) -> None:
    control = server.control
    session = await control.claims.open_session(worker="w")
    await control.jobs.submit("Shop", kind="load", queue="loads", retries=0)
    jobs = await control.claims.claim(["loads"], session.id, 1)
    await control.claims.start(jobs)
    await control.attempts.complete([Completion(jobs[0], result=msgspec.Raw(stored(a_summary(verdict=verdict))))])

    text = await text_of(server, "/loads")

    assert re.search(rf'"Verdict"><span class="state {state}"><i aria-hidden="true">.</i> {verdict}</span>', text)


async def test_a_load_test_without_numbers_says_so_and_two_of_them_cannot_be_compared(server: Server) -> None:
    one, two = [await server.control.jobs.submit("Shop", kind="load") for _ in range(2)]
    assert "no numbers yet" in await text_of(server, f"/loads/{one.id}")
    assert "no numbers yet" in await text_of(server, f"/loads/compare?run={one.id}&run={two.id}", 422)
    assert "choose two" in await text_of(server, f"/loads/compare?run={one.id}", 422)


async def test_a_load_test_at_work_is_drawn_from_what_it_has_saved(server: Server) -> None:
    control = server.control
    made = await control.jobs.submit("Shop", kind="load", queue="loads")
    session = await control.claims.open_session(worker="g")
    (job,) = await control.claims.claim(["loads"], session.id, 1)
    await control.claims.report(
        [control.claims.progress(job, 30, 60, "8,000 requests", checkpoint=stored(a_summary(count=300)))]
    )
    text = await text_of(server, f"/loads/{made.id}")
    assert "Service time over time" in text
    assert "p95 of browse" in text
    assert 'data-poll="2"' in text


async def test_an_open_load_test_is_drawn_by_its_response_time_first(server: Server) -> None:
    control = server.control
    made = await control.jobs.submit("Shop", kind="load", queue="loads")
    session = await control.claims.open_session(worker="g")
    (job,) = await control.claims.claim(["loads"], session.id, 1)
    open_one = an_open_summary()
    (step,) = open_one.steps
    step.failed, step.ok = step.requests // 2, latency([0.25])
    await control.claims.report([control.claims.progress(job, 30, 60, "4,000 requests", checkpoint=stored(open_one))])

    text = await text_of(server, f"/loads/{made.id}")

    assert 0 < text.index("Response time over time") < text.index("Service time over time")
    assert 0 < text.index("Distribution of the response time") < text.index("Distribution of the service time")
    table = text.partition("<h2>Steps</h2>")[2].partition("</table>")[0]
    assert re.findall(r'<td data-label="Step"[^>]*>(?:<b>)?([^<]+)', table) == ["browse", "ok", "response time"]
    assert '<td class="num" data-label="p95">250 ms</td>' in table
    assert open_one.response is not None
    assert f'data-label="p95">{time_text(open_one.response.p95)}<' in await text_of(server, "/loads")


async def test_the_list_of_load_tests_says_times_and_rates_as_the_page_of_each_does(server: Server) -> None:
    control = server.control
    made = await control.jobs.submit("Shop", kind="load", queue="loads")
    session = await control.claims.open_session(worker="g")
    (job,) = await control.claims.claim(["loads"], session.id, 1)
    fast = a_summary(count=300, service=latency([0.000586]), rate=81234.0)
    await control.claims.report([control.claims.progress(job, 30, 60, "", checkpoint=stored(fast))])
    listed = await text_of(server, "/loads")
    assert 'data-label="p95">586 µs<' in listed
    assert 'data-label="Rate">81,234/s<' in listed
    assert "81,234/s" in await text_of(server, f"/loads/{made.id}")
