"""A house that is looked at by a real browser. One of each for a whole file: they cost seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.web.chromium import chromium
from tests.web.dashboard.house import House

#: a machine that does much else may be slow
_PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A folder with a store, a server and workers."""
    made = House(tmp_path_factory.mktemp("house"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of a file."""
    with chromium() as launched:
        yield launched


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Somebody's browser, with nothing in it."""
    made = browser.new_context(viewport={"width": 1280, "height": 800})
    made.set_default_timeout(_PATIENCE_MS)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page on which nothing may go wrong: no script fails, and nothing is blocked by the page's own policy."""
    troubles: list[str] = []
    made = context.new_page()
    made.on("pageerror", lambda error: troubles.append(str(error)))
    made.on("console", lambda said: troubles.append(said.text) if "Content Security Policy" in said.text else None)
    yield made
    assert troubles == []
