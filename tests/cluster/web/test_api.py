"""The cluster over HTTP."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mainstay.web.security.tokens import Tokens
from tests.cluster.web.memory_clusters import failed, is_led, seen, served_cluster, states
from tests.web.conftest import serving

API = "/api/v1/cluster"


async def test_a_cluster_is_shown_with_its_managers_nodes_leaders_and_journal() -> None:
    async with served_cluster("m1", "m2") as (cluster, server, watch):
        await cluster.beat("n1", cpu=0.5, running=("a-job",), running_count=1, labels={"zone": "a"})
        await seen(watch, lambda status: len(status.nodes) == 1 and len(status.managers) == 2 and is_led(status))

        whole = (await server.client.get(API)).json()
        nodes = (await server.client.get(f"{API}/nodes")).json()["nodes"]
        node = (await server.client.get(f"{API}/nodes/n1")).json()
        managers = (await server.client.get(f"{API}/managers")).json()["managers"]
        leads = (await server.client.get(f"{API}/leaders")).json()["leads"]

    assert (whole["cluster"], whole["environment"]) == ("local", "default")
    assert "node_joined" in {entry["event"] for entry in whole["journal"]}
    assert [each["name"] for each in nodes] == ["n1"]
    assert (node["state"], node["beat"]["cpu"], node["beat"]["running"]) == ("active", 0.5, ["a-job"])
    assert node["beat"]["labels"] == {"zone": "a"}
    assert [each["name"] for each in managers] == ["m1", "m2"]
    assert {each["name"]: (each["manager"] in ("m1", "m2"), each["epoch"]) for each in leads} == {
        "leader": (True, 1),
        "placement": (True, 1),
    }


async def test_nodes_are_listed_by_state_and_an_unknown_one_is_not_found() -> None:
    async with served_cluster() as (cluster, server, watch):
        for name in ("n1", "n2"):
            await cluster.beat(name)
        await seen(watch, lambda status: len(status.nodes) == 2)
        cluster.hang_up("n2")
        await seen(watch, lambda status: states(status).get("n2") == "away")

        away = (await server.client.get(f"{API}/nodes", params={"state": "away,closed"})).json()["nodes"]
        wrong = await server.client.get(f"{API}/nodes", params={"state": "asleep"})
        unknown = await server.client.get(f"{API}/nodes/n9")

    assert [(node["name"], node["reason"]) for node in away] == [("n2", "its connection to the bus was closed")]
    assert wrong.status_code == 422
    assert (unknown.status_code, unknown.json()["type"]) == (404, "node_not_found")
    assert "n1, n2" in unknown.json()["detail"]


async def test_the_journal_is_that_of_all_managers_and_each_thing_is_in_it_once() -> None:
    async with served_cluster("m1", "m2") as (cluster, server, watch):
        await cluster.beat("n1")
        await seen(watch, lambda status: len(status.nodes) == 1 and is_led(status))

        entries = (await server.client.get(f"{API}/journal")).json()["entries"]
        newest = (await server.client.get(f"{API}/journal", params={"limit": 1})).json()["entries"]
        before = {"before_ms": entries[-1]["at_ms"], "from_ms": entries[0]["at_ms"]}
        earlier = (await server.client.get(f"{API}/journal", params=before)).json()["entries"]

    assert [entry["event"] for entry in entries].count("node_joined") == 1
    # the two leads are noted by the managers that took them
    assert [entry["about"] for entry in entries if entry["event"] == "lead_taken"] != []
    assert [entry["at_ms"] for entry in entries] == sorted(entry["at_ms"] for entry in entries)
    assert newest == entries[-1:]
    assert earlier == [entry for entry in entries if entry["at_ms"] < entries[-1]["at_ms"]]


@pytest.mark.parametrize("path", ["", "/nodes", "/nodes/n1", "/managers", "/leaders", "/journal", "/stream"])
async def test_a_server_without_a_cluster_says_so(path: str) -> None:
    async with serving() as server:
        answer = await server.client.get(API + path)
        page = await server.client.get("/cluster")
        front = await server.client.get("/")
    assert (answer.status_code, answer.json()["type"]) == (404, "no_cluster")
    assert "mainstay serve --cluster URL" in answer.json()["detail"]
    assert page.status_code == 404
    assert 'href="/cluster"' not in front.text


async def test_without_a_manager_the_answer_is_503_with_the_time_to_ask_again() -> None:
    async with served_cluster("m1") as (cluster, server, watch):
        await seen(watch, lambda status: True)
        await cluster.stop_manager("m1")
        await failed(watch)

        answers = [await server.client.get(API + path) for path in ("", "/nodes/n1", "/journal")]
        answers.append(await server.client.post(f"{API}/nodes/n1/drain"))
        page = await server.client.get("/cluster")

    assert [(each.status_code, each.json()["type"], each.headers["retry-after"]) for each in answers] == [
        (503, "no_manager", "2")
    ] * 4
    assert "No manager answers" in page.text
    assert "This page shows the last known state" in page.text


async def test_an_operator_drains_a_node_and_the_audit_log_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    reader, operator = tokens.add("eve", ["read"]), tokens.add("ann", ["operate"])
    async with served_cluster(tokens=tokens) as (cluster, server, watch):
        session = await cluster.open_session("n1")
        await cluster.beat("n1", sessions=(session.id,))
        await seen(watch, lambda status: len(status.nodes) == 1)
        with caplog.at_level(logging.INFO, "mainstay.web.audit"):
            async with server.as_(reader) as eve, server.as_(operator) as ann:
                refused = await eve.post(f"{API}/nodes/n1/drain")
                done = await ann.post(f"{API}/nodes/n1/drain")
                unknown = await ann.post(f"{API}/nodes/n9/drain")
        [stored] = [each for each in await cluster.store.sessions() if each.id == session.id]

    assert (refused.status_code, refused.json()["type"]) == (403, "scope_needed")
    assert (done.status_code, done.json()) == (200, {"node": "n1", "draining": True})
    assert (unknown.status_code, unknown.json()["type"]) == (404, "node_not_found")
    assert stored.draining_by == "web:ann"
    lines = [record.getMessage() for record in caplog.records if record.name == "mainstay.web.audit"]
    assert any(line.startswith("did=drain_node actor=web:ann") and "node=n1" in line for line in lines)
    assert any(line.startswith("refused=drain_node actor=web:eve") for line in lines)


async def test_secret_values_of_labels_are_masked() -> None:
    async with served_cluster() as (cluster, server, watch):
        await cluster.beat("n1", labels={"api_key": "hush-hush", "zone": "a"})
        await seen(watch, lambda status: len(status.nodes) == 1)
        node = (await server.client.get(f"{API}/nodes/n1")).json()
        page = (await server.client.get("/cluster")).text
    assert node["beat"]["labels"] == {"api_key": "***", "zone": "a"}
    assert "hush-hush" not in page


async def test_the_description_has_the_cluster_on_every_server() -> None:
    async with serving() as server:
        paths = (await server.client.get("/api/v1/openapi.json")).json()["paths"]
    assert {path.partition("/cluster")[2] for path in paths if "/cluster" in path} == {
        *(
            "",
            "/cores",
            "/nodes",
            "/nodes/{name}",
            "/nodes/{name}/drain",
            "/managers",
            "/leaders",
            "/journal",
            "/stream",
        ),
    }


async def test_a_manager_that_has_not_heard_a_node_yet_drains_it() -> None:
    """It was just started, and answers before the next beat of the node."""
    async with served_cluster("m1") as (cluster, server, _):
        session = await cluster.open_session("n1")
        done = await server.client.post(f"{API}/nodes/n1/drain")
        [stored] = [each for each in await cluster.store.sessions() if each.id == session.id]

    assert done.status_code == 200, done.text
    assert stored.is_draining
