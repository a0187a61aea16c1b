"""What the guard relies on is what browsers do; here a real one does it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from mainstay.web.security.tokens import Tokens
from tests.web.chromium import chromium
from tests.web.dashboard.house import House

pytestmark = pytest.mark.slow


class Stranger:
    """A page of another site: a link to ours, and forms that would change something there."""

    def __init__(self, url: str) -> None:
        page = (
            f'<a href="{url}/queues">see</a>'
            f'<form method=post action="{url}/logout"><button id=out>x</button></form>'
            f'<form method=post action="{url}/login"><input name=token value=mst_x><button id=in>x</button></form>'
            f'<form method=post action="{url}/api/v1/queues/mail/pause"><button id=pause>x</button></form>'
        ).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        # to a browser another site than 127.0.0.1
        self.url = f"http://localhost:{self._server.server_port}/"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # a name of a stranger that points to this machine
    with chromium("--host-resolver-rules=MAP evil.example 127.0.0.1") as launched:
        yield launched


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context() as context:
        context.set_default_timeout(20_000)
        yield context.new_page()


def test_a_session_is_safe_from_other_sites_and_open_to_links(page: Page, house: House) -> None:
    tokens = Tokens(house.folder / "tokens.json")
    secret = tokens.add("ann", ["admin"])
    url = house.serve("--tokens", str(tokens.path))
    stranger = Stranger(url)
    try:
        page.goto(f"{url}/queues")
        page.get_by_label("API token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/queues")
        assert page.evaluate("document.cookie") == ""

        page.goto(stranger.url)
        page.get_by_text("see").click()
        page.wait_for_url("**/queues")

        for button, status in (("#out", 403), ("#in", 403), ("#pause", 401)):
            page.goto(stranger.url)
            with page.expect_navigation() as refused:
                page.click(button)
            assert refused.value is not None
            assert refused.value.status == status

        page.goto(f"{url}/queues")
        assert page.url == f"{url}/queues"
    finally:
        stranger.close()


def test_where_nobody_is_asked_strangers_neither_read_nor_change(page: Page, house: House) -> None:
    url = house.serve()
    stranger = Stranger(url)
    try:
        page.goto(stranger.url)
        with page.expect_navigation() as refused:
            page.click("#pause")
        assert refused.value is not None
        assert refused.value.status == 403

        page.goto(stranger.url)
        read = "async url => { try { await fetch(url); return 'read' } catch { return 'kept' } }"
        assert page.evaluate(read, f"{url}/api/v1/jobs") == "kept"

        port = url.rpartition(":")[2]
        rebound = page.goto(f"http://evil.example:{port}/api/v1/jobs")
        assert rebound is not None
        assert (rebound.status, rebound.json()["type"]) == (403, "wrong_host")
    finally:
        stranger.close()


def test_what_is_injected_into_a_page_does_not_run(page: Page, house: House) -> None:
    page.goto(f"{house.serve()}/api/v1/openapi.json")

    with page.expect_console_message(lambda message: "Content Security Policy" in message.text):
        page.evaluate(
            """() => {
                const script = document.createElement('script');
                script.textContent = 'window.ran = true';
                document.body.append(script);
            }"""
        )

    assert page.evaluate("window.ran") is None
