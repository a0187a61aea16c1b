"""The dashboard of `mainstay cluster up` in real Chromium, and what else is seen of a cluster of real processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from mainstay.cluster.local_cluster_file import read_cluster_file
from tests.web.chromium import chromium

pytestmark = pytest.mark.slow

T = TypeVar("T")
PATIENCE_S = 60.0

expect.set_options(timeout=60_000)


class ClusterUp:
    """`mainstay cluster up` as a process, with its dashboard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "log.txt"
        self._started: list[subprocess.Popen[str]] = []
        self.start("cluster", "up", "--managers", "2", "--nodes", "2", "--grace", "1s", "--folder", str(folder / "c"))
        self.url = self.printed(r"dashboard +(http\S+)/cluster")

    def start(self, *words: str) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            command = [sys.executable, "-m", "mainstay", *words]
            process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True
            )
        self._started.append(process)
        return process

    def printed(self, pattern: str) -> str:
        """What a process has printed."""
        return until(lambda: next(iter(re.findall(pattern, self._log.read_text())), None))

    def run(self, *words: str) -> str:
        command = [sys.executable, "-m", "mainstay", *words]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def get(self, path: str) -> Any:
        answer = httpx.get(f"{self.url}/api/v1{path}", timeout=20)
        answer.raise_for_status()
        return answer.json()

    def stop(self) -> None:
        for process in reversed(self._started):
            process.send_signal(signal.SIGTERM)
        for process in self._started:
            assert process.wait(PATIENCE_S) == 0, self._log.read_text()


def until(look: Callable[[], T | None]) -> T:
    """What `look` returns first; processes cannot be waited for in another way."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            found = look()
        except httpx.HTTPError:
            found = None
        if found is not None:
            return found
        assert time.monotonic() < deadline_s, "it has not happened"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUp]:
    cluster = ClusterUp(tmp_path_factory.mktemp("up"))
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which nothing may go wrong."""
    troubles: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(60_000)
    made = context.new_page()
    made.on("pageerror", lambda error: troubles.append(str(error)))
    made.on("console", lambda said: troubles.append(said.text) if "Content Security Policy" in said.text else None)
    yield made
    context.close()
    assert troubles == []


def test_a_server_of_its_own_and_one_in_a_manager_show_the_same_cluster(up: ClusterUp) -> None:
    folder = up.folder / "c"
    up.start("serve", "--cluster", str(folder), "--port", "0")
    served = up.printed(r"(?m)^(http://127\.0\.0\.1:\d+)$")
    file = read_cluster_file(folder)
    # a manager that joins by hand, as the user of managers
    config = (folder / "nats.conf").read_text()
    password = re.search(r'user: "?manager"?,? *password: "?([\w-]+)"?', config)
    assert password is not None, config
    url = re.sub(r"//[^@]+@", f"//manager:{password[1]}@", file.url)
    manager = up.start("manager", url, "--store", file.store, "--name", "m9", "--serve", "0")
    beside = up.printed(r"serves +(http\S+)")

    def of(address: str) -> set[str] | None:
        names = {each["name"] for each in httpx.get(f"{address}/api/v1/cluster/managers").json()["managers"]}
        return names if len(names) == 3 else None

    assert until(lambda: of(served)) == until(lambda: of(beside)) == {"m1", "m2", "m9"}
    assert "mainstay_cluster_nodes" in httpx.get(f"{beside}/metrics").text
    manager.send_signal(signal.SIGTERM)
    assert manager.wait(PATIENCE_S) == 0
    assert until(lambda: up.get("/cluster") if len(up.get("/cluster/managers")["managers"]) == 2 else None)


def test_the_page_follows_nodes_and_the_death_of_a_manager_and_drains_a_node(up: ClusterUp, page: Page) -> None:
    job = up.run("submit", "wait", "seconds=600", "--store", read_cluster_file(up.folder / "c").store).split()[-1]
    page.goto(f"{up.url}/cluster")
    page.evaluate("window.neverReloaded = true")
    expect(page.locator("#link")).to_contain_text("live")
    for name in ("n1", "n2"):
        expect(page.locator(f"#member-{name}")).to_contain_text("active")
    runs = page.locator(".members tr", has=page.locator(f'a[href="/jobs/{job}"]'))
    expect(runs).to_have_count(1)
    busy = str(runs.get_attribute("id")).removeprefix("member-")

    story = up.run("jobs", "explain", job, "--cluster", str(up.folder / "c"))
    assert f"node {busy} on" in " ".join(story.split())
    advice = json.loads(up.run("jobs", "explain", job, "--cluster", str(up.folder / "c"), "--json"))["advice"]
    assert all("--store URL" in each["command"] for each in advice)

    before = next(lead for lead in up.get("/cluster/leaders")["leads"] if lead["name"] == "placement")
    up.run("cluster", "kill", before["manager"], "--folder", str(up.folder / "c"))

    def taken() -> str | None:
        """The manager that leads next: the other one, or the killed one if it was started again before."""
        for lead in up.get("/cluster/leaders")["leads"]:
            if lead["name"] == "placement" and lead["epoch"] > before["epoch"]:
                return lead["manager"] or None
        return None

    follower = until(taken)
    expect(page.locator(f"#manager-{follower}")).to_contain_text("placement, epoch")
    expect(page.locator(".journal")).to_contain_text(f"{follower} leads placement")
    assert page.evaluate("window.neverReloaded === true")

    page.get_by_role("button", name=f"Drain {busy}…").click()
    page.get_by_role("button", name="Drain", exact=True).click()
    expect(page.locator("#said")).to_contain_text(f"{busy} drains")
    expect(page.locator(".journal")).to_contain_text(f"asked node {busy} to drain")
    expect(page.locator(f"#member-{busy}")).not_to_contain_text("active")
    # its job goes to the other node
    other = "n1" if busy == "n2" else "n2"
    expect(page.locator(f"#member-{other}").locator(f'a[href="/jobs/{job}"]')).to_have_count(1)

    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url(f"{up.url}/")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url(f"{up.url}/cluster")


def test_the_status_is_printed_again_and_again_for_programs(up: ClusterUp) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mainstay", "cluster", "status", "--watch", "--every", "100ms", "--json"],
        env={"MAINSTAY_CLUSTER_URL": read_cluster_file(up.folder / "c").url, "PATH": ""},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 130
    assert lines[0]["at_ms"] < lines[1]["at_ms"]
    assert "node_joined" in {entry["event"] for entry in lines[0]["journal"]}
