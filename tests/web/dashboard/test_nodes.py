"""Nodes and node jobs in real Chromium: thirty nodes in every phase, kept up to date without a reload."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from playwright.sync_api import Page, expect

from mainstay.stores import JobStore, open_store
from tests.node.fleet import FakeNode, units_of
from tests.node.phases import phased_job
from tests.web.dashboard.house import House

pytestmark = pytest.mark.slow

expect.set_options(timeout=15_000)
T = TypeVar("T")


class NodeSite:
    """A server on a store with a node job."""

    def __init__(self, house: House, job_id: str, url: str) -> None:
        self.house = house
        self.job = job_id
        self.url = url

    def do(self, act: Callable[[JobStore], Awaitable[T]]) -> T:
        return on_store(self.house, act)


def on_store(house: House, act: Callable[[JobStore], Awaitable[T]]) -> T:
    """Do something on the store. On a thread of its own: the browser's has a loop that runs."""

    async def main() -> T:
        store = await open_store(house.store)
        try:
            return await act(store)
        finally:
            await store.close()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, main()).result()


async def _thirty_nodes(store: JobStore) -> str:
    job = await phased_job(store, more=23)
    await store.lead("placement", job.nodes["succeeded"].id, 3600.0)
    return job.id


@pytest.fixture
def site(tmp_path: Path) -> Iterator[NodeSite]:
    """Each test has a store of its own: nodes of other jobs would be members, too."""
    house = House(tmp_path)
    job_id = on_store(house, _thirty_nodes)
    yield NodeSite(house, job_id, house.serve())
    house.close()


def test_thirty_nodes_are_seen_by_phase_and_change_without_a_reload(page: Page, site: NodeSite) -> None:
    page.goto(f"{site.url}/jobs/{site.job}")
    page.evaluate("window.neverReloaded = true")
    cells = page.get_by_role("list", name="Nodes of the job").get_by_role("link")
    expect(cells).to_have_count(30)
    expect(page.get_by_role("link", name="running: running, 75%, packing")).to_be_visible()
    expect(page.locator("#quorum")).to_contain_text("1 of 16")
    expect(page.locator("#leader-phase")).to_contain_text("not begun")
    expect(page.get_by_role("list", name="Nodes by phase")).to_contain_text("✕ failed 1")

    async def complete(store: JobStore) -> None:
        unit = (await units_of(store, site.job))["node/running"]
        await FakeNode(store, "running", 5).complete([unit])

    site.do(complete)
    expect(page.get_by_role("link", name="running: succeeded")).to_be_visible()
    expect(page.locator("#quorum")).to_contain_text("2 of 16")
    assert page.evaluate("window.neverReloaded === true")

    # a cell leads to the unit of its node
    page.get_by_role("link", name="failed: failed, Error: it broke").click()
    expect(page.locator("h1")).to_contain_text("compact:local")


def test_a_failed_node_is_retried(page: Page, site: NodeSite) -> None:
    page.goto(f"{site.url}/jobs/{site.job}")
    page.get_by_role("button", name="Retry failed…").click()
    page.locator("dialog[open]").get_by_label("Why").fill("the disk is new")
    page.get_by_role("button", name="Run it again").click()
    expect(page.locator("#said")).to_contain_text("failed runs it again")
    expect(page.get_by_role("link", name="failed: waiting")).to_be_visible()
    units = site.do(lambda store: units_of(store, site.job))
    assert units["node/failed"].status == "pending"
    assert units["node/failed"].reason == "the disk is new"


def test_the_grid_is_read_without_colours_and_fits_a_phone(page: Page, site: NodeSite) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{site.url}/jobs/{site.job}")
    signs = page.eval_on_selector_all(".node", "(all) => all.map((one) => [one.textContent, one.ariaLabel])")
    assert len(signs) == 30
    for text, label in signs:
        assert label.split(": ")[1].split(",")[0] in text, "the phase is in the text of the cell"
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "nothing is cut off"


def test_the_page_of_nodes_is_reached_from_the_navigation(page: Page, site: NodeSite) -> None:
    page.goto(f"{site.url}/")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Nodes").click()
    expect(page.locator("#placement")).to_contain_text("succeeded")
    row = page.get_by_role("row").filter(has_text="leads, epoch")
    expect(row).to_have_count(1)
    expect(page.locator("[data-row]").filter(has_text="zone=b").first).to_be_visible()

    async def drain(store: JobStore) -> None:
        [session] = [each for each in await store.sessions() if each.node == "n000"]
        await store.drain([session.id], by="ann")

    site.do(drain)
    expect(page.locator("[data-row]").filter(has_text="n000")).to_contain_text("draining")
