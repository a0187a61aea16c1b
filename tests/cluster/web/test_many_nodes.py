"""The dashboard in real Chromium, with a hundred nodes and twenty load tests at work on them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cluster.web.fixed_cluster import NODES, NODES_OF_RUN, RUNS, ServedFixedCluster, fixed_cluster
from tests.web.chromium import chromium

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFixedCluster]:
    with fixed_cluster(tmp_path_factory.mktemp("many")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which nothing may go wrong, and that is never loaded again."""
    troubles: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(60_000)
    made = context.new_page()
    made.on("pageerror", lambda error: troubles.append(str(error)))
    made.on("console", lambda said: troubles.append(said.text) if said.type == "error" else None)
    yield made
    context.close()
    assert troubles == []


def opened(page: Page, url: str, *, how: str = "live") -> None:
    page.goto(url)
    page.evaluate("window.neverReloaded = true")
    expect(page.locator("#link")).to_contain_text(how, timeout=60_000)


def is_wide(page: Page) -> bool:
    """Whether something does not fit beside the edge of the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def test_the_cores_of_a_hundred_nodes_are_coloured_by_twenty_runs(served: ServedFixedCluster, page: Page) -> None:
    opened(page, f"{served.url}/cluster")

    cells = page.locator("ul.cores > li")
    expect(cells).to_have_count(NODES)
    chips = page.locator('ul[aria-label="Runs that hold cores"] a')
    expect(chips).to_have_count(RUNS)
    assert {str(chips.nth(number).get_attribute("href")).split("/")[-1] for number in range(RUNS)} == set(served.runs)
    expect(page.locator("#cores-used")).to_have_text(str(NODES * 4))
    # every cell has the colour of its one run, and says so in words
    assert cells.locator("path[class^=run-]").count() == NODES
    assert all(re.search("shop", str(cells.nth(number).get_attribute("title"))) for number in (0, 50, 99))
    expect(page.locator("#manager-m1")).to_contain_text(f"and {RUNS - 5} more")
    assert not is_wide(page)
    page.set_viewport_size({"width": 390, "height": 800})
    assert not is_wide(page)


def test_a_node_that_becomes_overloaded_or_is_away_is_shown_without_loading_the_page(
    served: ServedFixedCluster, page: Page
) -> None:
    opened(page, f"{served.url}/cluster")
    expect(page.locator("#member-n42")).not_to_contain_text("overloaded")

    served.change("n42", overload="overloaded")
    served.change("n77", state="away", reason="it is silent")

    expect(page.locator("#member-n42")).to_contain_text("overloaded", timeout=60_000)
    expect(page.locator("#member-n77")).to_contain_text("it is silent", timeout=60_000)
    # what needs attention comes first
    assert page.locator("tr[id^=member-]").first.get_attribute("id") == "member-n77"
    assert page.evaluate("window.neverReloaded === true")


def test_twenty_live_tests_are_listed_and_each_has_its_nodes(served: ServedFixedCluster, page: Page) -> None:
    opened(page, f"{served.url}/loads", how="polling")
    expect(page.locator("tr[id^=row-]")).to_have_count(RUNS)
    assert not is_wide(page)

    opened(page, f"{served.url}/loads/{served.runs[7]}")
    nodes = page.locator('section[aria-labelledby="slices"] tbody tr')
    expect(nodes).to_have_count(NODES_OF_RUN)
    expect(nodes.first).to_contain_text("1,000")

    served.report(served.runs[7], requests=2468)
    expect(nodes.first).to_contain_text("2,468", timeout=60_000)
    assert page.evaluate("window.neverReloaded === true")
