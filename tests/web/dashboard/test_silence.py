"""A server that stands still, seen in real Chromium: its connections stay open, and nothing comes over them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.web.dashboard.house import House
from tests.web.dashboard.plant import Plant

pytestmark = pytest.mark.slow

expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def url(house: House) -> str:
    return house.serve()


@pytest.fixture(scope="module")
def job(house: House) -> str:
    """One to which nothing happens: nobody works here."""

    async def submit(plant: Plant) -> str:
        return (await plant.sums.submit()).id

    return house.do(submit)


@pytest.mark.parametrize(("path", "good"), [("/", "live"), ("/jobs/JOB", "live"), ("/loads", "polling")])
def test_a_server_that_falls_silent_is_noticed_and_heard_again_without_a_reload(
    page: Page, house: House, url: str, job: str, path: str, good: str
) -> None:
    link, asked = page.locator("#link"), []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.install()
    page.goto(url + path.replace("JOB", job))
    page.evaluate("window.neverReloaded = true")
    expect(link).to_have_text(good)
    with house.frozen(url):
        before = len(asked)
        # what was under way may still arrive, and is heard
        while "no message" not in (link.text_content() or ""):
            page.clock.fast_forward("00:30")
        expect(link).to_have_text(re.compile(r"no message for \d+s$"))
        expect(page.locator("body")).to_have_class(re.compile("stale"))
        # what was open may be dead for good
        page.wait_for_function("live.looked > live.heard")
        assert [one for one in asked[before:] if "/stream" in one or good == "polling"] != []
    expect(link).to_have_text(good)
    expect(page.locator("body")).not_to_have_class(re.compile("stale"))
    assert page.evaluate("window.neverReloaded")


def test_a_page_on_which_nothing_happens_hears_that_the_server_is_there(page: Page, url: str, job: str) -> None:
    page.goto(f"{url}/jobs/{job}")
    expect(page.locator("#link")).to_have_text("live")
    for _ in range(2):
        page.wait_for_function("before => live.heard > before", arg=page.evaluate("live.heard"))
        expect(page.locator("#link")).to_have_text("live")
