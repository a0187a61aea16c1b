"""Nothing is told by colour alone, and the colours are told apart without seeing red and green."""

from __future__ import annotations

import zlib
from itertools import combinations
from typing import Literal

import pytest
from playwright.sync_api import Browser, CDPSession, Page

from mainstay.lifecycle import JOB, UNIT
from mainstay.web.dashboard.words import look_of
from tests.web.dashboard.house import House

pytestmark = pytest.mark.slow

#: what states and curves are drawn in
KINDS = ("good", "bad", "busy", "wait")
#: of 441 between black and white; what is nearer is taken for the same at a glance
FAR = 40.0


@pytest.fixture(scope="module")
def url(house: House) -> str:
    return house.serve()


def pixel(page: Page, x: int, y: int) -> tuple[int, int, int]:
    """What is seen there. The first pixel of a PNG is in it as it is, whatever its filter."""
    png = page.screenshot(clip={"x": x, "y": y, "width": 1, "height": 1})
    body, at = b"", 8
    while at < len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        body += png[at + 8 : at + 8 + size] if png[at + 4 : at + 8] == b"IDAT" else b""
        at += 12 + size
    red, green, blue = zlib.decompress(body)[1:4]
    return red, green, blue


def seen(page: Page, cdp: CDPSession, eyes: str) -> dict[str, tuple[int, int, int]]:
    """The colours as these eyes see them."""
    cdp.send("Emulation.setEmulatedVisionDeficiency", {"type": eyes})
    return {kind: pixel(page, 10 + 20 * place, 10) for place, kind in enumerate(KINDS)}


@pytest.mark.parametrize("eyes", ["none", "deuteranopia", "protanopia", "tritanopia"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_kinds_of_states_are_told_apart_by_any_eyes(
    browser: Browser, url: str, scheme: Literal["light", "dark"], eyes: str
) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(url)
    page.evaluate(
        """(kinds) => {
          const strip = document.body.appendChild(document.createElement("div"));
          strip.style.cssText = "position: fixed; inset: 0 auto auto 0; display: flex; z-index: 9";
          for (const kind of kinds) {
            const swatch = strip.appendChild(document.createElement("i"));
            swatch.style.cssText = `width: 20px; height: 20px; background: var(--${kind})`;
          }
        }""",
        list(KINDS),
    )
    colours = seen(page, page.context.new_cdp_session(page), eyes)
    page.close()
    near = {
        pair: far
        for pair in combinations(KINDS, 2)
        if (far := sum((a - b) ** 2 for a, b in zip(*map(colours.get, pair), strict=True)) ** 0.5) < FAR
    }
    assert near == {}


def test_states_of_one_kind_differ_in_their_sign_or_are_told_by_their_word(browser: Browser, url: str) -> None:
    page = browser.new_page()
    page.goto(f"{url}/jobs")
    told = page.eval_on_selector_all(
        ".state", "(all) => all.map((one) => [one.querySelector('i').textContent, one.textContent.trim()])"
    )
    page.close()
    assert {text.split()[-1] for _, text in told} == set(JOB.states)
    assert [text for sign, text in told if not sign.strip() or text == sign] == []
    kinds = {name: look_of(name) for name in (*JOB.states, *UNIT.states)}
    signs = {kind: {look.sign for look in kinds.values() if look.kind == kind} for kind in KINDS}
    for one, other in combinations(KINDS, 2):
        assert signs[one] & signs[other] == set(), "kinds have signs of their own"
