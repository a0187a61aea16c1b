"""The live stream of a cluster."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

from mainstay.cluster.web.watch import ClusterWatch
from tests.cluster.web.memory_clusters import (
    EVERY_S,
    MemoryCluster,
    is_led,
    memory_cluster,
    seen,
    served_cluster,
    states,
)
from tests.web.conftest import serving
from tests.web.live.listening import Listener, listening

STREAM = "/api/v1/cluster/stream"


@contextlib.asynccontextmanager
async def another_server(cluster: MemoryCluster, seed: int) -> AsyncIterator[tuple[Any, ClusterWatch]]:
    watch = ClusterWatch(cluster.client, every_s=EVERY_S, rng=random.Random(seed))
    async with serving(cluster=watch) as server:
        yield server.app, watch


async def entry(stream: Listener, event: str) -> tuple[str, str | None]:
    """What the next entry of the journal of this event is about, and the id of the message."""
    while True:
        found = await stream.next("journal")
        if found.data["event"] == event:
            return found.data["about"], found.id


async def test_a_stream_begins_with_the_state_and_goes_on_with_what_happens() -> None:
    async with served_cluster() as (cluster, server, watch):
        await cluster.beat("n1")
        await seen(watch, lambda status: len(status.nodes) == 1)
        async with listening(server.app, STREAM) as stream:
            first = await stream.next("cluster")
            await cluster.beat("n2")
            joined = await entry(stream, "node_joined")
            while "nodes" not in (change := await stream.next("change")).data:
                pass
    assert [node["name"] for node in first.data["nodes"]] == ["n1"]
    assert joined[0] == "n2"
    # only what is new to the client
    assert [(node["name"], node["state"]) for node in change.data["nodes"]] == [("n2", "active")]


async def test_a_beat_that_says_nothing_new_is_not_sent() -> None:
    async with served_cluster("m1") as (cluster, server, watch):
        await cluster.beat("n1", cpu=0.51)
        await seen(watch, lambda status: is_led(status) and all(each.leads for each in status.managers))
        await seen(watch, lambda status: len(status.nodes) == 1)
        async with listening(server.app, STREAM) as stream:
            await stream.next("cluster")
            await cluster.beat("n1", cpu=0.54)
            await seen(watch, lambda status: status.nodes[0].beat.number == 2)
            await cluster.beat("n1", cpu=0.94)
            while "nodes" not in (change := await stream.next("change")).data:
                pass
    assert [node["beat"]["number"] for node in change.data["nodes"]] == [3]


async def test_a_client_that_comes_back_gets_the_entries_after_its_last_one_each_once() -> None:
    async with served_cluster() as (cluster, server, watch):
        async with listening(server.app, STREAM) as stream:
            await stream.next("cluster")
            await cluster.beat("n1")
            _, mark = await entry(stream, "node_joined")
        for name in ("n2", "n3"):
            await cluster.beat(name)
            await seen(watch, lambda status, name=name: name in states(status))
        cluster.hang_up("n2")
        await seen(watch, lambda status: states(status)["n2"] == "away")
        async with listening(server.app, STREAM, last=mark) as stream:
            events = []
            while (message := await stream.next()).event == "journal":
                events.append((message.data["event"], message.data["about"]))
    assert [each for each in events if each[0].startswith("node_")] == [
        ("node_joined", "n2"),
        ("node_joined", "n3"),
        ("node_away", "n2"),
    ]


async def test_a_client_that_comes_to_another_server_misses_nothing() -> None:
    async with memory_cluster() as cluster:
        async with another_server(cluster, 1) as (app, watch), listening(app, STREAM) as stream:
            await stream.next("cluster")
            await cluster.beat("n1")
            _, mark = await entry(stream, "node_joined")
        await cluster.beat("n2")
        async with another_server(cluster, 2) as (app, watch):
            await seen(watch, lambda status: len(status.nodes) == 2)
            async with listening(app, STREAM, last=mark) as stream:
                about = []
                while (message := await stream.next()).event == "journal":
                    about.append((message.data["event"], message.data["about"]))
    assert ("node_joined", "n2") in about


async def test_a_slow_client_gets_the_newest_state_and_every_entry() -> None:
    async with served_cluster() as (cluster, server, watch), listening(server.app, STREAM) as stream:
        await stream.next("cluster")
        for number in range(20):
            await cluster.beat(f"n{number:02d}")
            await seen(watch, lambda status, n=number: len(status.nodes) == n + 1)
        messages = []
        nodes: set[str] = set()
        while len([each for each in messages if each.event == "journal"]) < 20 or len(nodes) < 20:
            message = await stream.next("change", "journal")
            if message.event == "change":
                nodes |= {node["name"] for node in message.data.get("nodes", ())}
            if message.event == "change" or message.data["event"] == "node_joined":
                messages.append(message)
    joined = [each.data["about"] for each in messages if each.event == "journal"]
    assert joined == [f"n{number:02d}" for number in range(20)]
    # states that were superseded while it did not read were not kept for it
    assert len(messages) - len(joined) <= 3


async def test_entries_that_a_server_no_longer_keeps_are_named_as_skipped() -> None:
    async with served_cluster("m1") as (cluster, server, watch):
        async with listening(server.app, STREAM) as stream:
            first = await stream.next("cluster")
        # the managers have noted what they do by themselves
        await seen(watch, lambda status: is_led(status) and all(each.leads for each in status.managers))
        for number in range(3):
            await cluster.beat(f"n{number}")
            await seen(watch, lambda status, n=number: len(status.nodes) == n + 1)
        while watch.entries[0].number < watch.number:
            watch.entries.popleft()
        async with listening(server.app, STREAM, last=first.id) as stream:
            trouble = await stream.next("trouble")
            newest = await stream.next("journal")
    assert "were skipped" in trouble.data["detail"]
    assert newest.data["about"] == "n2"


async def test_a_stream_goes_on_when_managers_are_back() -> None:
    async with served_cluster("m1") as (cluster, server, _), listening(server.app, STREAM) as stream:
        await stream.next("cluster")
        await cluster.stop_manager("m1")
        trouble = await stream.next("trouble")
        await cluster.start_manager("m2")
        while (state := await stream.next("cluster")).data["manager"] != "m2":
            pass
    assert trouble.data["detail"]
    assert [each["name"] for each in state.data["managers"]] == ["m2"]


async def test_a_state_that_has_not_changed_is_not_sent_again() -> None:
    async with served_cluster("m1") as (cluster, server, watch):
        await seen(watch, lambda status: is_led(status) and all(each.leads for each in status.managers))
        version = watch.versions.version
        async with listening(server.app, STREAM) as stream:
            await stream.next("cluster")
            reads = watch.changed
            for _ in range(5):
                await reads.wait()
                reads = watch.changed
            assert watch.versions.version == version
            await cluster.beat("n1")
            later = await stream.next("change")
    assert [node["name"] for node in later.data["nodes"]] == ["n1"]


async def test_an_id_of_another_stream_is_refused() -> None:
    async with served_cluster() as (_, server, _watch):
        answer = await server.client.get(STREAM, headers={"Last-Event-ID": "7-end"})
    assert (answer.status_code, answer.json()["field"]) == (422, "Last-Event-ID")
