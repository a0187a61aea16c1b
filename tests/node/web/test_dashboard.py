"""The pages of nodes and node jobs, without a browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from mainstay.model import Progress
from mainstay.node import MemberStatus
from mainstay.node.queries import PHASES
from mainstay.node.web.dashboard import LOOKS, cell_of
from mainstay.testing import MemoryStore
from tests.node.fleet import submit
from tests.node.phases import PhasedJob, phased_job
from tests.web.conftest import Server, serving


class Pages:
    """A server on a store with a node job, and its pages."""

    def __init__(self, server: Server, job: PhasedJob) -> None:
        self.server = server
        self.job = job

    async def read(self, path: str) -> str:
        answer = await self.server.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    store = MemoryStore()
    job = await phased_job(store, more=24)
    async with serving(store=store) as server:
        yield Pages(server, job)


def test_no_two_phases_look_alike() -> None:
    assert {phase for phase in LOOKS if phase not in ("not begun", "none")} == set(PHASES)
    assert len({LOOKS[phase] for phase in PHASES}) == len(PHASES)


def test_a_cell_tells_its_phase_and_its_progress_in_words() -> None:
    member = MemberStatus(
        node="db-1", id="x", phase="running", status="running", since_ms=0, progress=Progress(done=1, total=3)
    )
    cell = cell_of(member)
    assert (cell.label, cell.percent) == ("db-1: running, 33%", 33)
    assert cell_of(MemberStatus(node="a", id="x", phase="failed", status="timed_out", since_ms=0)).label == (
        "a: failed, timed out"
    )


async def test_the_page_of_a_job_has_a_cell_for_each_node(pages: Pages) -> None:
    text = await pages.read(f"/jobs/{pages.job.id}")

    assert len(re.findall(r'class="node \w+"', text)) == 31
    assert 'aria-label="running: running, 75%, packing"' in text
    assert re.search(r'data-poll="\d+"', text)
    assert "not reached yet" in text
    assert "Retry failed…" in text
    first = text.index('class="node bad"')
    assert first < text.index('class="node busy"') < text.index('class="node good"'), "those that need attention first"


async def test_three_hundred_nodes_are_drawn_densely() -> None:
    store = MemoryStore()
    job = await phased_job(store, more=300)
    async with serving(store=store) as server:
        text = await Pages(server, job).read(f"/jobs/{job.id}")
    assert 'class="nodes dense"' in text
    assert len(re.findall(r'class="node \w+"', text)) == 307


async def test_a_job_that_has_not_begun_has_no_cells_and_tells_why(pages: Pages) -> None:
    async with serving(store=MemoryStore()) as server:
        job_id = await submit(server.stores.first.store)
        text = (await server.client.get(f"/jobs/{job_id}")).text
    assert "No node is active on this store." in text
    assert "of the nodes that are active when it begins" in text


async def test_a_job_of_another_kind_has_no_poll(pages: Pages) -> None:
    other = await pages.server.control.jobs.submit("mail.send")
    text = await pages.read(f"/jobs/{other.id}")
    assert 'data-poll=""' in text
    assert 'id="nodes"' not in text


async def test_the_page_of_nodes_names_the_leader_and_the_work_of_each(pages: Pages) -> None:
    text = await pages.read("/nodes")

    assert "Work is placed by <b>succeeded</b>, epoch 1." in text
    assert "leads, epoch 1" in text
    assert "zone=a" in text
    assert text.count("data-row>") == 30, "the lost one is closed"
    assert f'href="/jobs/{pages.job.id}"' in text
    assert 'data-key="n"' in text


async def test_without_nodes_the_page_tells_how_to_start_one() -> None:
    async with serving(store=MemoryStore()) as server:
        assert "mainstay worker MODULE:APP --node NAME" in (await server.client.get("/nodes")).text


async def test_the_queue_of_placed_jobs_is_shown_and_cannot_be_paused(pages: Pages) -> None:
    await pages.server.control.jobs.submit("mail.send", queue="mail")
    hub = pages.server.site.hub
    async with aclosing(hub.subscribe("main")) as snapshots:
        hub.nudge("main")
        async for snapshot in snapshots:
            if {"mail", "@place"} <= {queue.name for queue in snapshot.queues}:
                break
    text = await pages.read("/queues")
    assert "@place" in text
    assert "/api/v1/queues/mail/pause" in text
    assert "/api/v1/queues/%40place/pause" not in text


async def test_the_payload_of_a_job_is_shown_as_its_arguments_and_its_policy(pages: Pages) -> None:
    found = (await pages.server.client.get(f"/api/v1/jobs/{pages.job.id}?payload=true")).json()
    assert set(found["payload"]) == {"arguments", "policy"}
    unit = await pages.job.unit_id("running")
    assert (await pages.server.client.get(f"/api/v1/jobs/{unit}?payload=true")).json()["payload"]["node"] == "running"
