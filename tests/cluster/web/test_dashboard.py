"""The page of the cluster."""

from __future__ import annotations

import re
from pathlib import Path

from mainstay.control import Control
from mainstay.model import Session
from mainstay.web.security.tokens import Tokens
from tests.cluster.web.memory_clusters import is_led, seen, served_cluster, states


async def test_a_cluster_without_nodes_says_how_to_add_one() -> None:
    async with served_cluster("m1") as (_, server, watch):
        await seen(watch, is_led)
        page = (await server.client.get("/cluster")).text
    assert "No node has joined" in page
    assert "mainstay node join URL MODULE:APP" in page
    assert "there is one manager only" in page
    assert 'id="manager-m1"' in page
    assert re.search(r'href="/cluster" aria-current="page" data-key="c"', page)


async def test_a_node_is_shown_with_its_load_its_work_and_why_it_is_away() -> None:
    async with served_cluster("m1", "m2") as (cluster, server, watch):
        session = await cluster.open_session("n1")
        job = await _running(cluster.control, session)
        beat = {"sessions": (session.id,), "running": (job,), "running_count": 1, "cpu": 0.5, "memory": 0.25}
        await cluster.beat("n1", target="shop:app", labels={"zone": "a"}, **beat)
        await cluster.beat("n2")
        await seen(watch, lambda status: len(status.nodes) == 2 and is_led(status))
        cluster.hang_up("n2")
        await seen(watch, lambda status: states(status)["n2"] == "away")
        # the name of the job comes from the snapshot of the store
        server.site.hub.nudge("main")
        async for snapshot in server.site.hub.subscribe("main"):
            if any(each.jobs for each in snapshot.sessions):
                break
        page = (await server.client.get("/cluster")).text

    first, second = page.index('id="member-n2"'), page.index('id="member-n1"')
    assert first < second, "what needs attention comes first"
    away, active = page[first:second], page[second:]
    assert "its connection to the bus was closed" in away
    assert "1 node away: n2" in page
    for text in ("active", "2.0", "of 4", "50%", "25%", f'href="/jobs/{job}">send</a>', "zone=a", "shop:app"):
        assert text in active, text
    assert "n1 joined from host-of-n1 with 4 cores" in page
    assert 'data-stream="/api/v1/cluster/stream"' in page


async def test_the_level_of_a_node_and_the_jobs_that_a_manager_leads_are_shown() -> None:
    async with served_cluster("m1") as (cluster, server, watch):
        for _ in range(3):
            await cluster.beat("n1", cpu=0.9)
            await cluster.beat("n2", cpu=0.1)
        await seen(watch, lambda status: [node.overload for node in status.nodes] == ["stressed", "normal"])
        page = (await server.client.get("/cluster")).text
        levels = (await server.client.get("/api/v1/cluster/nodes")).json()["nodes"]

    first, second = page.index('id="member-n1"'), page.index('id="member-n2"')
    assert '<span class="load-stressed">stressed</span>' in page[first:second]
    assert "stressed" not in page[second : page.index('id="managers"')]
    assert "n1 is stressed: 90% of its processors" in page
    assert [each["overload"] for each in levels] == ["stressed", "normal"]


async def test_a_hundred_nodes_fit_on_the_page() -> None:
    async with served_cluster("m1") as (cluster, server, watch):
        for number in range(100):
            await cluster.beat(f"node-{number:03d}", running=("x" * 36,) * 20, running_count=20)
        await seen(watch, lambda status: len(status.nodes) == 100)
        page = (await server.client.get("/cluster")).text
    assert page.count('id="member-node-') == 100
    assert page.count("and 19 more") == 100
    assert 'class="list cards members dense"' in page
    assert len(page) < 400_000


async def test_only_operators_get_the_button_to_drain(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    reader, operator = tokens.add("eve", ["read"]), tokens.add("ann", ["operate"])
    async with served_cluster(tokens=tokens) as (cluster, server, watch):
        await cluster.beat("n1")
        await seen(watch, lambda status: len(status.nodes) == 1)
        async with server.as_(reader) as eve, server.as_(operator) as ann:
            seen_by_eve, seen_by_ann = (await eve.get("/cluster")).text, (await ann.get("/cluster")).text
    assert "Drain…" not in seen_by_eve
    assert 'data-set-action="/api/v1/cluster/nodes/n1/drain"' in seen_by_ann


async def test_a_job_on_a_node_is_explained_with_what_managers_know() -> None:
    async with served_cluster() as (cluster, server, watch):
        session = await cluster.open_session("n1")
        job = await _running(cluster.control, session)
        await cluster.beat("n1", sessions=(session.id,))
        await seen(watch, lambda status: len(status.nodes) == 1)
        cluster.hang_up("n1")
        await seen(watch, lambda status: states(status)["n1"] == "away")
        story = (await server.client.get(f"/api/v1/jobs/{job}/explain")).json()
        page = (await server.client.get(f"/jobs/{job}")).text
    now = " ".join(next(each["sentences"] for each in story["sections"] if each["title"] == "now"))
    assert "node n1 on host-of-n1 has been away for" in now
    assert "its connection to the bus was closed" in now
    assert "node n1 on host-of-n1 has been away for" in page


async def _running(control: Control, session: Session) -> str:
    made = await control.jobs.submit("send", {})
    rows = await control.claims.claim(["default"], session.id, 1)
    await control.claims.start(rows)
    return made.id
