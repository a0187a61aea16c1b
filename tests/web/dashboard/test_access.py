"""Every page, on a desk and on a phone: nothing keeps people from using it, and nothing is cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from mainstay.control import Completion, Failure
from mainstay.control.schedules import register, schedule
from mainstay.load.handler import stored
from mainstay.web.security.tokens import Tokens
from tests.load.report.runs import a_summary
from tests.web.dashboard.house import House, submit_study, two_loads
from tests.web.dashboard.plant import Plant

pytestmark = pytest.mark.slow

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
SIZES = {"desk": (1440, 900), "laptop": (1280, 800), "phone": (390, 844)}
NAME, QUEUE = "n" * 200, "q" * 100
LOOKS = [(size, light) for size in ("desk", "phone") for light in ("light", "dark")]


#: what reaches beyond the screen, unless it is in a box that scrolls
BEYOND = """() => {
  const root = document.documentElement;
  const found = root.scrollWidth > innerWidth ? [`is ${root.scrollWidth} wide`] : [];
  for (const one of document.querySelectorAll("main *, header *")) {
    const { right, width } = one.getBoundingClientRect();
    if (width && right > innerWidth + 1 && !one.closest(".wide, nav, pre, thead, .hidden, svg, .tile, .said"))
      found.push(`${one.tagName}.${one.className} reaches to ${right}`);
  }
  return found.slice(0, 5);
}"""


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
        "bulk": "/jobs/bulk?all=matching&action=retry&status=quarantined",
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
    await (await plant.app.open()).jobs.wait(job_id, "60s")


@pytest.fixture(scope="module")
def long_names(house: House) -> dict[str, str]:
    """Pages with names as long as they may be, and without a place to break them."""

    async def submit(plant: Plant) -> tuple[str, str, str]:
        control = await plant.app.open()
        long = {"queue": QUEUE, "retries": 0, "tags": ["t" * 100], "key": "k" * 200, "concurrency_key": "c" * 100}
        failed = await control.jobs.submit(NAME, {"p" * 100: "v" * 500}, metadata={"m" * 100: "w" * 300}, **long)
        session = await control.claims.open_session(worker="w" * 64, host="h" * 100, lease_s=3600)
        (claimed,) = await control.claims.claim([QUEUE], session.id, 1)
        await control.claims.start([claimed])
        await control.attempts.fail([Failure(claimed, type("E" * 100, (Exception,), {})("f" * 500))])
        running = await control.jobs.submit(NAME, queue=QUEUE, retries=0)
        (claimed,) = await control.claims.claim([QUEUE], session.id, 1)
        await control.claims.start([claimed])
        await control.claims.report([control.claims.progress(claimed, 1, 3, "g" * 300)])
        await control.jobs.submit(NAME, queue=QUEUE)
        await control.operations.pause(QUEUE, reason="r" * 300, actor="a" * 100)
        await control.operations.set_limit("c" * 100, 3)
        await register(control, [schedule("s" * 90, "1h", NAME)])
        load = await control.jobs.submit(NAME, kind="load", queue="loads", retries=0)
        (claimed,) = await control.claims.claim(["loads"], session.id, 1)
        await control.claims.start([claimed])
        summary = a_summary(count=100, errors={"e" * 200: 3})
        summary.steps[0].step = "i" * 100
        await control.attempts.complete([Completion(claimed, result=msgspec.Raw(stored(summary)))])
        return failed.id, running.id, load.id

    failed, running, load = house.do(submit)
    return {
        "overview": "/",
        "jobs": "/jobs",
        "filtered": f"/jobs?queue={QUEUE}&name={NAME}&tag={'t' * 100}&key={'k' * 200}",
        "bulk": f"/jobs/bulk?all=matching&action=retry&queue={QUEUE}&name={NAME}",
        "failed job": f"/jobs/{failed}",
        "running job": f"/jobs/{running}",
        "queues": "/queues",
        "workers": "/workers",
        "schedules": "/schedules",
        "loads": "/loads",
        "load": f"/loads/{load}",
        "compare": f"/loads/compare?run={load}&run={load}",
    }


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
    return found + cut_off(page, name)


def cut_off(page: Page, name: str) -> list[str]:
    """Whether the page is wider than its screen, or something on it is cut that cannot be scrolled to."""
    return [f"{name}: {one}" for one in page.evaluate(BEYOND)]


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


@pytest.mark.parametrize(("size", "light"), [("laptop", "light"), ("phone", "dark")])
def test_names_as_long_as_they_may_be_do_not_make_a_page_wider_than_its_screen(
    page: Page, pages: dict[str, str], long_names: dict[str, str]
) -> None:
    found = []
    for name, path in long_names.items():
        page.goto(pages["url"] + path)
        # some pages tell what the server saw when it last looked
        expect(page.locator("main")).to_contain_text(re.compile(f"{NAME}|{QUEUE}"), timeout=30_000)
        found += cut_off(page, name)
    assert found == []


@pytest.mark.parametrize(("size", "light"), [("phone", "light")])
def test_what_is_said_of_the_connection_has_room_on_a_phone(page: Page, pages: dict[str, str]) -> None:
    page.goto(pages["url"])
    expect(page.locator("#link")).to_have_text("live")
    # so that nothing is heard meanwhile
    page.evaluate(
        "live.close(); live.hear = () => {}; live.silence = () => 59 * 60 * 1000; live.lost = true; live.tell()"
    )
    expect(page.locator("#link")).to_have_text(re.compile("no message for 59m$"))
    assert cut_off(page, "overview") == []


@pytest.mark.parametrize(("size", "light"), [("phone", "light")])
def test_the_report_of_a_load_test_has_room_on_a_phone(page: Page, pages: dict[str, str]) -> None:
    page.goto(pages["url"] + pages["load"])
    figure = page.locator("figure", has=page.locator(".scale")).first
    title, switch = figure.locator("figcaption").bounding_box(), figure.locator(".scale").bounding_box()
    assert title is not None
    assert switch is not None
    beside = switch["x"] >= title["x"] + title["width"] or switch["y"] >= title["y"] + title["height"]
    assert beside, (title, switch)
    box = page.locator(".report .wide", has_text="stdev")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth && box.getBoundingClientRect().right <= innerWidth")
    # its end is reached, and that there is more beyond the edge is seen
    assert box.evaluate(
        "box => { box.scrollLeft = 9999; return box.scrollLeft + box.clientWidth === box.scrollWidth; }"
    )
    assert "gradient" in box.evaluate("box => getComputedStyle(box).backgroundImage")


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
