"""The page of a load test in real Chromium, of runs that were made for it: one with users, and one at a rate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Request

from mainstay.load.report.files import write_report
from mainstay.load.stats.model import Summary
from mainstay.load.target import TargetOptions, TargetServer
from tests.load.trials import GET, ran, written
from tests.web.chromium import chromium

pytestmark = pytest.mark.slow

TWO_STEPS = f"""{GET}
    @step("browse", tags={{"area": "checkout"}})
    async def pay(self, url: URL = "/echo") -> HTTPResponse:
        return await self.client.http.post(url, json={{"sum": 5}})
"""
AXE = (Path(__file__).parents[2] / "web" / "dashboard" / "vendor" / "axe.min.js").read_text()
#: each screen in each light
LOOKS: dict[str, tuple[int, Literal["light", "dark"]]] = {
    "desk, light": (1280, "light"),
    "desk, dark": (1280, "dark"),
    "phone, light": (390, "light"),
    "phone, dark": (390, "dark"),
}
#: of each chart that is seen: its title, how many marks it has and whether they are as small as points, whether it lies
#: within the page
CHARTS = """() => [...document.querySelectorAll('svg[role=img]')].filter((svg) => svg.checkVisibility()).map((svg) => {
  const area = svg.getBoundingClientRect(), drawn = [...svg.querySelectorAll('path[class^=c], rect.bar')];
  return {
    title: svg.querySelector('title').textContent,
    marks: svg.querySelectorAll('path[class^=c], circle.dot, rect.bar').length,
    points: drawn.length > 0 && drawn.every((one) => !one.getBBox().width && !one.getBBox().height),
    within: area.left >= 0 && area.right <= innerWidth && area.width > 100 && area.height > 50,
  };
})"""


async def _run(folder: Path) -> dict[str, Summary]:
    async with TargetServer(TargetOptions(latency="bimodal 2ms 40ms 5%", errors="5%", seed=3)) as target:
        test = written(folder, TWO_STEPS)
        limits = ("p95 of browse < 30s", "response p95 < 30s", "error rate < 0.1%")
        return {
            "closed": await ran(
                test, vus=4, duration="1500ms", base_url=target.url, thresholds=("p95 < 30s", "error rate < 90%")
            ),
            "open": await ran(test, rate="60/s", duration="1500ms", base_url=target.url, thresholds=limits),
        }


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    summaries = asyncio.run(_run(folder))
    return {name: write_report("html", folder / f"{name}.html", one)[0] for name, one in summaries.items()}


@pytest.fixture(scope="module")
def browser(reports: dict[str, Path]) -> Iterator[Browser]:
    """After the runs: while it is there, the event loop of this thread is its own."""
    assert reports
    with chromium() as launched:
        yield launched


class Watched:
    """A page on which nothing may go wrong, and which may ask for nothing but itself."""

    def __init__(self, page: Page) -> None:
        self.troubles: list[str] = []
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("console", lambda said: self.troubles.append(said.text))
        page.on("request", self._asked)

    def _asked(self, request: Request) -> None:
        if not request.is_navigation_request():
            self.troubles.append(f"asked for {request.url}")


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("kind", ["closed", "open"])
def test_a_report_is_whole_on_every_screen(browser: Browser, reports: dict[str, Path], kind: str, look: str) -> None:
    width, scheme = LOOKS[look]
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    watched = Watched(page)

    page.goto(reports[kind].as_uri())

    charts = page.evaluate(CHARTS)
    wanted = {"Service time over time", "Requests a second", "Active users", "Distribution of the service time"}
    if kind == "open":
        wanted |= {"Response time over time", "Distribution of the response time"}
        assert charts[0]["title"] == "Response time over time"
    assert wanted <= {one["title"] for one in charts}
    assert [one for one in charts if not one["marks"] or one["points"] or not one["within"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(AXE)
    violations = page.evaluate("axe.run({resultTypes: ['violations']}).then((found) => found.violations)")
    grave = [one for one in violations if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["target"] for node in one["nodes"][:3]]) for one in grave] == []
    assert watched.troubles == []
    context.close()


def test_a_pointer_over_a_chart_is_told_its_numbers_and_a_scale_is_chosen_by_a_click(
    browser: Browser, reports: dict[str, Path]
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    watched = Watched(page)
    page.goto(reports["open"].as_uri())
    first = page.locator("figure").first

    for scale, place in (("linear", ".even"), ("logarithmic", ".tall")):
        first.get_by_text(scale).click()
        assert first.locator(place).is_visible()
        first.locator(f"{place} svg").hover()
        assert "p95 " in (first.locator(".tip").text_content() or "")

    assert first.locator(".even").is_hidden()
    assert watched.troubles == []
    page.close()
