"""Every page, on a desk and on a phone: nothing keeps people from using it, and nothing is cut off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from mainstay.web.security.tokens import Tokens
from tests.web.dashboard.house import House, submit_study, two_loads
from tests.web.dashboard.plant import Plant

pytestmark = pytest.mark.slow

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
SIZES = {"desk": (1440, 900), "phone": (390, 844)}
LOOKS = [(size, light) for size in SIZES for light in ("light", "dark")]


@pytest.fixture(scope="module")
def pages(house: House) -> dict[str, str]:
    """Pages with something on them, by name."""

    async def submit(plant: Plant) -> tuple[str, str]:
        failed = await plant.charge.submit(1, token="tok")
        await failed.wait("60s")
        running = await plant.ship.submit(2, {"city": "Bern"}, gate="never")
        for order in range(3, 8):
            await plant.ship.submit(order, {"city": "Bern"})
        return failed.id, running.id

    (house.folder / "disk-full").touch()
    house.work()
    batch = house.do(submit_study)
    failed, running = house.do(submit)
    house.do(lambda plant: settled(plant, batch))
    first, second = house.do(two_loads)
    tokens = house.folder / "tokens.json"
    Tokens(tokens).add("ann", ["admin"])
    return {
        "url": house.serve(),
        "guarded": house.serve("--tokens", str(tokens)),
        "overview": "/",
        "jobs": "/jobs",
        "nothing found": "/jobs?queue=nowhere",
        "bulk": "/jobs/bulk?action=retry&status=quarantined",
        "failed job": f"/jobs/{failed}",
        "running job": f"/jobs/{running}",
        "batch story": f"/jobs/{batch}",
        "queues": "/queues",
        "workers": "/workers",
        "schedules": "/schedules",
        "batches": "/batches",
        "batch": f"/batches/{batch}",
        "loads": "/loads",
        "load": f"/loads/{first}",
        "compare": f"/loads/compare?run={first}&run={second}",
        "refused": "/jobs?status=nonsense",
    }


async def settled(plant: Plant, job_id: str) -> None:
    await (await plant.app.open()).wait(job_id, "60s")


@pytest.fixture
def page(browser: Browser, size: str, light: Literal["light", "dark"]) -> Iterator[Page]:
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=light)
    yield context.new_page()
    context.close()


def troubles(page: Page, name: str) -> list[str]:
    """What keeps people out, and what is cut off."""
    page.evaluate(AXE)
    found = []
    for violation in page.evaluate("axe.run({resultTypes: ['violations']}).then((found) => found.violations)"):
        if violation["impact"] in ("serious", "critical"):
            where = [node["target"] for node in violation["nodes"][:3]]
            found.append(f"{name}: {violation['id']}: {violation['help']} at {where}")
    if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
        found.append(f"{name} is wider than the screen")
    return found


@pytest.mark.parametrize(("size", "light"), LOOKS)
def test_no_page_keeps_anybody_out_or_is_wider_than_its_screen(page: Page, pages: dict[str, str]) -> None:
    found: list[str] = []
    for name, path in pages.items():
        if name in ("url", "guarded"):
            continue
        page.goto(pages["url"] + path)
        expect(page.locator("#link")).not_to_have_text("connecting")
        found += troubles(page, name)
    assert found == []


@pytest.mark.parametrize(("size", "light"), LOOKS)
def test_neither_a_dialog_nor_the_form_to_sign_in_keeps_anybody_out(page: Page, pages: dict[str, str]) -> None:
    page.goto(f"{pages['guarded']}/jobs?queue=mail")
    found = troubles(page, "sign in")
    page.get_by_label("API token").fill("mst_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    found += troubles(page, "refused")
    for name, path in (("failed job", "Force…"), ("batch", "Resume…"), ("queues", "Pause…")):
        page.goto(pages["url"] + pages[name])
        page.get_by_role("button", name=path).first.click()
        expect(page.locator("dialog[open]")).to_be_visible()
        found += troubles(page, f"{path} of {name}")
    page.goto(pages["url"])
    page.get_by_role("button", name="Keyboard shortcuts").click()
    found += troubles(page, "keys")
    assert found == []


@pytest.mark.parametrize(("size", "light"), [("phone", "light")])
def test_what_is_looked_at_is_in_sight_on_a_phone(page: Page, pages: dict[str, str]) -> None:
    for path, current in (("/loads", "nav [aria-current]"), (pages["failed job"], ".machine .box.now rect")):
        page.goto(pages["url"] + path)
        box = page.locator(current).bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= SIZES["phone"][0], path
    # whoever looks elsewhere is left there when the page is brought up to date
    page.evaluate("document.querySelector('.wide:has(.machine)').scrollLeft = 0")
    page.evaluate("live.look()")
    expect(page.locator("#live:not(.htmx-request)")).to_be_visible()
    assert page.evaluate("document.querySelector('.wide:has(.machine)').scrollLeft") == 0
