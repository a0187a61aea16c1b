"""The page of a load test that runs on nodes, in real Chromium: live numbers without a reload."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from mainstay.web.options import WebOptions
from mainstay.web.security.middleware import wrapped
from mainstay.web.server import make_server
from mainstay.web.site import make_site
from mainstay.web.stores import ServedStore, ServedStores
from tests.load.cli.moments import moments
from tests.load.web.led_run import HEADER, BusOnlyCluster, LedRun, led_run
from tests.web.chromium import chromium

pytestmark = pytest.mark.slow


class LiveSite:
    """A run and a server of its cluster, on a thread of their own: the browser's has a loop that runs."""

    def __init__(self) -> None:
        self.url = ""
        self.run: LedRun
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _serve(self) -> None:
        options = WebOptions(snapshot_s=0.1)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with led_run() as self.run, ServedStores({"main": ServedStore("main", self.run.store)}) as stores:
                app = make_site(stores, options, tokens=None, cluster=BusOnlyCluster(self.run.network, "s1"))
                served = wrapped(app, options, knows=app.state.site.guard.knows)
                server = make_server(served, options, started=self._ready.set)
                serving = asyncio.create_task(server.serve(sockets=[listening]))
                await self._stopping.wait()
                server.stop()
                await serving


@pytest.fixture
def site() -> Iterator[LiveSite]:
    found = LiveSite()
    found.start()
    yield found
    found.stop()


def test_the_page_of_a_run_shows_its_numbers_now_and_its_last_minute(site: LiveSite) -> None:
    some = list(moments(HEADER, seconds=8.0, a_second=100, failing=0.5))
    site.do(site.run.pass_on(some[:40]))
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{site.url}/loads/{site.run.job.id}")
        page.evaluate("window.neverReloaded = true")
        strip = page.locator(".now-strip")
        expect(strip.locator('[data-now="rate"]')).to_have_text("100/s")
        expect(strip.locator('[data-now="users"]')).to_have_text("50")
        expect(strip.locator('[data-now="p95"]')).to_contain_text("ms")
        curve = strip.locator('[data-curve="rate"]')
        errors = strip.locator('[data-now="errors"]')
        drawn, counted = curve.get_attribute("points"), errors.text_content()
        assert counted
        site.do(site.run.pass_on(some[40:]))
        expect(curve).not_to_have_attribute("points", drawn or "")
        expect(errors).not_to_have_text(counted)
        site.do(site.run.end())
        expect(page.locator("h1")).to_contain_text("succeeded")
        expect(strip).to_have_count(0)
        assert page.evaluate("window.neverReloaded === true")
