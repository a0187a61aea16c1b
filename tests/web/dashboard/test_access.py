"""Every page, on a desk and on a phone: nothing keeps people from using it, and nothing is cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.web.dashboard.house import House, submit_study, two_loads
from tests.web.dashboard.plant import Plant

pytestmark = pytest.mark.slow

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
#: each screen in one light, each light on one screen
LOOKS = {"desk, light": (1440, 900), "phone, dark": (390, 844)}


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
    return {
        "url": house.serve(),
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


@pytest.mark.parametrize("look", LOOKS)
def test_no_page_keeps_anybody_out_or_is_wider_than_its_screen(
    browser: Browser, pages: dict[str, str], look: str
) -> None:
    width, height = LOOKS[look]
    scheme: Literal["light", "dark"] = "light" if "light" in look else "dark"
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    found: list[str] = []
    for name, path in pages.items():
        if name == "url":
            continue
        page.goto(pages["url"] + path)
        expect(page.locator("#link")).not_to_have_text("connecting")
        page.evaluate(AXE)
        for violation in page.evaluate("axe.run({resultTypes: ['violations']}).then((found) => found.violations)"):
            if violation["impact"] in ("serious", "critical"):
                where = [node["target"] for node in violation["nodes"][:3]]
                found.append(f"{name}: {violation['id']}: {violation['help']} at {where}")
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(f"{name} is wider than the screen")
    context.close()
    assert found == []
