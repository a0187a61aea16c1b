"""A real browser for tests."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from playwright.sync_api import Browser, sync_playwright

from servers.programs import program
from tests import places

#: what it may be called where it is no Debian package
_OTHERS = ("chromium-browser", "google-chrome")
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@contextlib.contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """Chromium, installed if that is possible; raises `ServerMissing` if it cannot be had."""
    with places.unlimited():
        path = next(filter(None, map(shutil.which, _OTHERS)), None) or program("chromium", "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*_FLAGS, *flags])
        yield browser
        browser.close()
