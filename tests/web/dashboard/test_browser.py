"""The dashboard in real Chromium, on a real server, store and worker: what an operator does, without a reload."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from mainstay.web.security.tokens import Tokens
from tests.web.dashboard.house import House, submit_study, two_loads
from tests.web.dashboard.plant import Plant

pytestmark = pytest.mark.slow

expect.set_options(timeout=60_000)


class Site:
    """A server that asks for a token, and the token of an operator."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token
        self._cookies: list[Any] = []

    def sign_in(self, page: Page, path: str) -> None:
        """As a person does: be sent to the form, fill it in, be sent back. Once: an address may sign in only a few
        times a minute."""
        page.context.add_cookies(self._cookies)
        page.goto(self.url + path)
        if not self._cookies:
            page.get_by_label("API token").fill(self.token)
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_url(self.url + path)
            self._cookies = [*page.context.cookies()]
        assert page.url == self.url + path
        # what a reload would forget
        page.evaluate("window.neverReloaded = true")


@pytest.fixture(scope="module")
def site(house: House) -> Site:
    file = house.folder / "tokens.json"
    secret = Tokens(file).add("ann", ["admin"])
    house.work()
    return Site(house.serve("--tokens", str(file)), secret)


def never_reloaded(page: Page) -> bool:
    return bool(page.evaluate("window.neverReloaded === true"))


def test_whoever_has_no_token_is_sent_to_sign_in_and_a_wrong_one_is_refused(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/jobs?queue=orders")
    page.get_by_label("API token").fill("mst_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("This token is not valid")
    page.get_by_label("API token").fill(site.token)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{site.url}/jobs?queue=orders")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{site.url}/login")


def test_a_job_is_watched_to_its_end_without_a_reload(page: Page, house: House, site: Site) -> None:
    async def submit(plant: Plant) -> str:
        return (await plant.ship.submit(7, {"city": "Bern", "password": "hush"}, gate="open-7")).id

    job = house.do(submit)
    site.sign_in(page, f"/jobs/{job}")
    expect(page.locator("h1")).to_contain_text("running")
    expect(page.locator(".progress")).to_contain_text("packing 3 of 3")
    expect(page.locator("#link")).to_contain_text("live")
    expect(page.locator("body")).not_to_contain_text("hush")
    (house.folder / "open-7").touch()
    expect(page.locator("h1")).to_contain_text("succeeded")
    expect(page.locator(".timeline")).to_contain_text("succeeded")
    expect(page.get_by_role("heading", name="Result")).to_be_visible()
    assert never_reloaded(page)


def test_a_quarantined_job_is_retried_and_comes_to_a_good_end(page: Page, house: House, site: Site) -> None:
    async def submit(plant: Plant) -> str:
        made = await plant.charge.submit(8, token="tok_4242")
        await made.wait("60s")
        return made.id

    (house.folder / "bank-open").unlink(missing_ok=True)
    job = house.do(submit)
    site.sign_in(page, f"/jobs/{job}")
    expect(page.locator("h1")).to_contain_text("quarantined")
    (house.folder / "bank-open").touch()
    page.get_by_role("button", name="Retry…").click()
    page.locator("dialog[open]").get_by_label("Why").fill("the bank is open again")
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.locator("#said")).to_contain_text("sent back to its queue")
    expect(page.locator("h1")).to_contain_text("succeeded")
    expect(page.locator(".timeline")).to_contain_text("the bank is open again")
    expect(page.locator(".timeline")).to_contain_text("web:ann")
    assert never_reloaded(page)


def test_a_running_job_is_cancelled(page: Page, house: House, site: Site) -> None:
    async def submit(plant: Plant) -> str:
        return (await plant.ship.submit(9, {"city": "Bern"}, gate="never")).id

    job = house.do(submit)
    site.sign_in(page, f"/jobs/{job}")
    expect(page.locator("h1")).to_contain_text("running")
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("h1")).to_contain_text("cancelled")
    assert never_reloaded(page)


def test_many_are_retried_after_a_look_at_them(page: Page, house: House, site: Site) -> None:
    async def submit(plant: Plant) -> None:
        for made in [await plant.charge.submit(order) for order in range(20, 23)]:
            await made.wait("60s")

    (house.folder / "bank-open").unlink(missing_ok=True)
    house.do(submit)
    (house.folder / "bank-open").touch()
    site.sign_in(page, "/jobs?queue=payments&status=quarantined")
    expect(page.locator("[data-row]")).to_have_count(3)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_role("checkbox", checked=True).and_(page.locator("[name=id]"))).to_have_count(1)
    expect(page.locator("[data-selected]")).to_have_text("1 job selected")
    page.keyboard.press("x")
    page.get_by_text("All that match", exact=True).click()
    page.get_by_role("link", name="Retry all that match…").click()
    expect(page.locator("h1")).to_contain_text("Retry ALL 3 jobs that match?")
    expect(page.locator("body")).to_contain_text("Status: quarantined")
    page.get_by_role("button", name="Retry ALL 3 jobs").click()
    page.wait_for_url(re.compile(r"/jobs\?.*queue=payments"))
    expect(page.locator("#said")).to_contain_text("3 sent back")
    expect(page.locator("body")).to_contain_text("No job matches.")


def test_many_are_cancelled_after_a_look_at_them(page: Page, house: House, site: Site) -> None:
    async def submit(plant: Plant) -> list[str]:
        later = plant.ship.options(queue="later")
        return [(await later.submit(order, {"city": "Bern"})).id for order in range(30, 33)]

    made = house.do(submit)
    site.sign_in(page, "/jobs?queue=later")
    page.locator(f"#row-{made[0]}").get_by_role("checkbox").check()
    page.locator(f"#row-{made[2]}").get_by_role("checkbox").check()
    page.get_by_role("button", name="Cancel selected…").click()
    expect(page.locator("h1")).to_contain_text("Cancel 2 selected jobs?")
    expect(page.locator("body")).to_contain_text("Nothing has been done yet.")
    expect(page.locator("[data-row]")).to_have_count(2)
    expect(page.get_by_role("button", name="Cancel 2 jobs")).to_have_class("danger")
    page.get_by_role("link", name="Back").click()
    page.wait_for_url(f"{site.url}/jobs?queue=later")
    page.goto(f"{site.url}/jobs?queue=later&status=pending")
    expect(page.locator("[data-row]")).to_have_count(3)
    page.get_by_label("Select all jobs of this page").check()
    expect(page.locator("[data-selected]")).to_have_text("3 jobs selected")
    page.get_by_role("button", name="Cancel selected…").click()
    page.get_by_label("Why").fill("not needed any more")
    page.get_by_role("button", name="Cancel 3 jobs").click()
    page.wait_for_url(re.compile(r"/jobs\?.*queue=later"))
    expect(page.locator("#said")).to_contain_text("3 ")
    page.goto(f"{site.url}/jobs?queue=later&status=cancelled")
    expect(page.locator("[data-row]")).to_have_count(3)
    expect(page.locator("[data-row]").first).to_contain_text("not needed any more")


def test_without_a_selection_nothing_can_be_done_and_a_selection_survives_live_updates(
    page: Page, house: House, site: Site
) -> None:
    async def submit(plant: Plant, orders: range) -> list[str]:
        later = plant.ship.options(queue="held")
        return [(await later.submit(order, {"city": "Bern"})).id for order in orders]

    first, second, third = house.do(partial(submit, orders=range(40, 43)))
    site.sign_in(page, "/jobs?queue=held")
    expect(page.locator("[data-row]")).to_have_count(3)
    retry, cancel = (page.get_by_role("button", name=f"{verb} selected…") for verb in ("Retry", "Cancel"))
    expect(retry).to_be_disabled()
    expect(cancel).to_be_disabled()
    expect(page.locator("[data-selected]")).to_have_text("No jobs selected")

    page.locator(f"#row-{first}").get_by_role("checkbox").check()
    page.locator(f"#row-{third}").get_by_role("checkbox").check()
    expect(page.locator("[data-selected]")).to_have_text("2 jobs selected")
    expect(cancel).to_be_enabled()
    # more than a page: the rows that are selected are pushed off it
    house.do(partial(submit, orders=range(50, 55)))
    expect(page.locator("[data-row]")).to_have_count(8)
    expect(page.locator("[data-selects]:checked")).to_have_count(2)
    house.do(partial(submit, orders=range(60, 110)))
    expect(page.locator(f"#row-{first}")).to_have_count(0)
    expect(page.locator("[data-selected]")).to_have_text("2 jobs selected, 2 not on this page")
    expect(cancel).to_be_enabled()
    assert never_reloaded(page)

    cancel.click()
    expect(page.locator("h1")).to_contain_text("Cancel 2 selected jobs?")
    expect(page.locator(f"#row-{first}")).to_be_visible()
    expect(page.locator(f"#row-{third}")).to_be_visible()
    page.get_by_role("button", name="Cancel 2 jobs").click()
    expect(page.locator("#said")).to_contain_text("2 cancelled")

    async def standing(plant: Plant) -> list[str]:
        return [job.status for job in await (await plant.app.open()).jobs.get_many([first, second, third])]

    assert house.do(standing) == ["cancelled", "pending", "cancelled"]


def test_all_jobs_of_a_store_are_named_as_all_and_need_a_second_word(page: Page, house: House, site: Site) -> None:
    async def submit(plant: Plant) -> str:
        return (await plant.ship.options(queue="all").submit(70, {"city": "Bern"})).id

    made = house.do(submit)
    site.sign_in(page, "/jobs")
    page.get_by_text("All that match", exact=True).click()
    expect(page.locator(".matching")).to_contain_text("ALL jobs of this store")
    page.get_by_role("link", name="Cancel all that match…").click()
    expect(page.locator("h1")).to_have_text(re.compile(r"Cancel ALL [\d,]+ jobs? of this store\?"))
    expect(page.locator(".banner")).to_contain_text("No filter is set.")
    confirm = page.get_by_role("button", name=re.compile("Cancel ALL"))
    expect(confirm).to_have_class("danger")
    confirm.click()
    assert page.locator(".sure input").evaluate("box => box.matches(':invalid')")
    page.get_by_role("link", name="Back").click()
    page.wait_for_url(f"{site.url}/jobs")

    async def standing(plant: Plant) -> str:
        [job] = await (await plant.app.open()).jobs.get_many([made])
        return job.status

    assert house.do(standing) == "pending"


def test_a_schedule_is_paused_run_by_hand_and_goes_on(page: Page, site: Site) -> None:
    site.sign_in(page, "/schedules")
    row = page.locator("tr", has_text="report.sums")
    expect(row).to_contain_text("ticks")
    row.get_by_role("button", name="Pause").click()
    expect(page.locator("#said")).to_contain_text("sums is paused")
    expect(row.locator(".state").first).to_contain_text("paused")
    row.get_by_role("button", name="Run now").click()
    expect(page.locator("#said")).to_contain_text("job submitted")
    row.get_by_role("button", name="Resume").click()
    expect(row.locator(".state").first).to_contain_text("ticks")
    assert never_reloaded(page)
    page.goto(f"{site.url}/jobs?name=report.sums")
    expect(page.locator("[data-row]").first).to_contain_text("succeeded")


def test_a_queue_is_paused_and_opened_again(page: Page, house: House, site: Site) -> None:
    async def submit(plant: Plant) -> None:
        await (await plant.sums.submit()).wait("60s")

    house.do(submit)
    site.sign_in(page, "/queues")
    row = page.locator("tr", has_text="reports")
    row.get_by_role("button", name="Pause…").click()
    page.locator("dialog[open]").get_by_label("Why").fill("month's end")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(row).to_contain_text("paused")
    expect(row).to_contain_text("by web:")
    expect(row).to_contain_text("month's end")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("active")
    assert never_reloaded(page)


def test_a_worker_is_drained_and_leaves_when_its_job_is_done(page: Page, house: House, site: Site) -> None:
    async def submit(plant: Plant) -> str:
        return (await plant.ship.options(queue="spare").submit(12, {"city": "Bern"}, gate="open-12")).id

    job = house.do(submit)
    spare = house.work("--queues", "spare", "--grace", "1h", name="spare")
    site.sign_in(page, "/workers")
    card = page.locator("section", has_text="spare")
    expect(card).to_contain_text(job[-12:])
    card.get_by_role("button", name="Drain spare").click()
    page.get_by_role("button", name="Drain", exact=True).click()
    expect(page.locator("#said")).to_contain_text("spare drains")
    expect(card).to_contain_text(re.compile("draining, requested .* by web:ann"))
    expect(card.get_by_role("button")).to_have_count(0)
    assert spare.poll() is None, "its job goes on"
    (house.folder / "open-12").touch()
    expect(card).to_have_count(0)
    assert spare.wait(60) == 0
    assert never_reloaded(page)


def test_a_partial_batch_is_resumed_from_its_map(page: Page, house: House, site: Site) -> None:
    (house.folder / "disk-full").touch()
    batch = house.do(submit_study)
    site.sign_in(page, f"/batches/{batch}")
    expect(page.locator("h1")).to_contain_text("partial")
    expect(page.locator(".map td.h")).to_have_count(8)
    (house.folder / "disk-full").unlink()
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    expect(page.locator("h1")).to_contain_text("succeeded")
    expect(page.locator(".map td.a")).to_have_count(16)
    assert never_reloaded(page)


LOAD = """
from mainstay.load import HTTPResponse, Workflow, step

class Steady(Workflow):
    base_url = "{url}"
    vus = 1
    pacing = "100ms"
    duration = "10m"

    @step()
    async def look(self) -> HTTPResponse:
        return await self.client.http.get("/livez")
"""


def test_a_load_test_is_watched_while_it_runs_and_ended(page: Page, house: House, site: Site) -> None:
    (house.folder / "steady.py").write_text(LOAD.format(url=site.url))
    running = house.load("steady.py")
    site.sign_in(page, "/loads")
    page.get_by_role("link", name="steady").click()
    page.wait_for_url(re.compile("/loads/[0-9a-f-]{36}"))
    page.evaluate("window.neverReloaded = true")
    curve, count = page.locator(".report figure path").first, page.locator(".facts dd:visible").first
    # each is drawn in two scales, of which one is shown
    expect(page.locator(".report figure svg:visible").first).to_be_visible()
    expect(curve).to_be_attached()
    first, counted = curve.get_attribute("d") or "", count.text_content() or ""
    expect(curve).not_to_have_attribute("d", first)
    expect(count).not_to_have_text(counted)
    assert never_reloaded(page)
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("h1")).to_contain_text("cancelled")
    running.wait(60)


def test_two_runs_of_a_load_test_are_compared(page: Page, house: House, site: Site) -> None:
    first, second = house.do(two_loads)
    site.sign_in(page, "/loads")
    for run in (first, second):
        page.locator(f"#row-{run}").get_by_role("checkbox").check()
    page.get_by_role("button", name="Compare two").click()
    expect(page.locator("h1")).to_contain_text("Two runs side by side")
    expect(page.locator(".report")).to_contain_text("numbers got better")
    expect(page.locator(".report figure svg").first).to_be_visible()


def test_what_is_refused_is_said_where_it_was_asked_for(page: Page, house: House, site: Site) -> None:
    async def submit(plant: Plant) -> str:
        return (await plant.ship.submit(11, {"city": "Bern"}, gate="never")).id

    job = house.do(submit)
    site.sign_in(page, f"/jobs/{job}")
    expect(page.locator("h1")).to_contain_text("running")
    page.get_by_role("button", name="Force…").click()
    page.get_by_label("To", exact=True).select_option("failed")
    page.locator("dialog[open]").get_by_label("Why").fill("\u2028 ")
    page.get_by_role("button", name="Force it").click()
    expect(page.locator("#force .refusal")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("h1")).to_contain_text("cancelled")


def test_what_is_done_is_meant_for_the_job_as_it_was_when_the_dialog_was_opened(
    page: Page, house: House, site: Site
) -> None:
    async def submit(plant: Plant) -> str:
        return (await plant.ship.options(queue="nobody", priority=1).submit(13, {"city": "Bern"})).id

    async def change(plant: Plant, *, priority: int) -> None:
        control = await plant.app.open()
        await control.operations.set_priority(job, priority, actor="somebody else")

    job = house.do(submit)
    site.sign_in(page, f"/jobs/{job}")
    for changed, (opens, sends) in enumerate((("Cancel…", "Cancel the job"), ("Priority…", "Change")), 2):
        page.get_by_role("button", name=opens).click()
        house.do(partial(change, priority=changed))
        # the page has the new version by now, and the dialog was opened before
        expect(page.locator("p", has_text="priority").first).to_contain_text(f"priority {changed}")
        page.get_by_role("button", name=sends, exact=True).click()
        expect(page.locator("dialog[open] .refusal")).to_contain_text("The job has changed since you opened this")
        page.keyboard.press("Escape")
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("h1")).to_contain_text("cancelled")
    assert never_reloaded(page)


def test_whoever_signs_in_again_after_the_session_ended_is_where_they_were(
    page: Page, context: BrowserContext, site: Site
) -> None:
    here = f"{site.url}/jobs?queue=orders&status=failed"
    site.sign_in(page, "/jobs?queue=orders&status=failed")
    context.clear_cookies()
    page.keyboard.press("r")
    # the page may look again by itself while it reloads, which aborts the first of two ways to the same place
    expect(page).to_have_url(re.compile(r"/login\?next="))
    page.get_by_label("API token").fill(site.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(here)
    page.goto(f"{site.url}/schedules")
    # by itself it would look again, and be sent away for that
    page.evaluate("live.look = () => {}")
    context.clear_cookies()
    page.get_by_role("button", name="Run now").click()
    expect(page).to_have_url(re.compile(r"/login\?next=%2Fschedules"))


def test_a_lost_connection_is_said_and_found_again(page: Page, context: BrowserContext, site: Site) -> None:
    site.sign_in(page, "/")
    expect(page.locator("#link")).to_contain_text("live")
    # what is open stays open when a browser is told to be offline, so the page is asked to connect anew
    context.set_offline(True)
    page.evaluate("live.open()")
    expect(page.locator("#link")).to_contain_text("connection lost")
    context.set_offline(False)
    expect(page.locator("#link")).to_contain_text("live")
    assert never_reloaded(page)


def test_light_and_dark_are_switched_and_remembered(page: Page, site: Site) -> None:
    site.sign_in(page, "/")
    page.emulate_media(color_scheme="light")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Light or dark").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_the_keyboard_leads_everywhere(page: Page, house: House, site: Site) -> None:
    async def submit(plant: Plant) -> None:
        await plant.ship.options(queue="nobody").submit(14, {"city": "Bern"})

    house.do(submit)
    site.sign_in(page, "/")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.keyboard.press("g")
    page.keyboard.press("u")
    page.wait_for_url(f"{site.url}/queues")
    page.keyboard.press("/")
    page.wait_for_url(re.compile(r"/jobs"))
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("order.ship")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"text=order\.ship"))
    page.keyboard.press("Tab")
    page.locator("body").press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}"))
