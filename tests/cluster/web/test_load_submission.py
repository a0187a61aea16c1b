"""Load tests for nodes over HTTP: their code is published, and the run is checked and submitted."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from mainstay.bundles import BundleLimits
from mainstay.bundles.packed import pack
from mainstay.client import AsyncClient
from mainstay.errors import InvalidInput, KeyConflict, RequestRefused
from mainstay.load import FleetDemand, LoadOptions
from mainstay.load.fleet.spec import FleetOptions
from mainstay.load.kind import KIND, SLICE
from mainstay.load.sources import Source
from mainstay.model import LEAD_QUEUE, Job, Offer, route_of
from mainstay.stores import Query
from mainstay.web.security.tokens import Tokens
from tests.cluster.web.memory_clusters import MemoryCluster, served_cluster
from tests.load.trials import GET, written
from tests.web.client.conftest import client_of
from tests.web.conftest import Server, serving

API = "/api/v1"
LOAD = LoadOptions(vus=20, duration="10s", base_url="http://127.0.0.1:1", proxy="http://ann:secret@127.0.0.1:2")


class Place:
    """A cluster whose node runs load tests, a server of it, and a folder with a test."""

    def __init__(self, cluster: MemoryCluster, server: Server, client: AsyncClient, folder: Path) -> None:
        self.cluster = cluster
        self.server = server
        self.client = client
        self.folder = folder
        self.notes: list[str] = []

    async def submit(self, source: str = GET, nodes: int | FleetDemand = 1, **options: Any) -> Any:
        test = written(self.folder, source)
        return await self.client.loads.submit(test, LOAD, nodes=nodes, on_note=self.notes.append, **options)

    async def jobs(self) -> list[Job]:
        return [job for job in (await self.cluster.store.find(Query())).jobs if job.queue == LEAD_QUEUE]


@asynccontextmanager
async def place(folder: Path, **options: Any) -> AsyncIterator[Place]:
    async with served_cluster("m1", **options) as (cluster, server, _):
        offer = Offer(cores=4, tasks={route_of(KIND.name, SLICE): {}})
        await cluster.control.claims.open_session(
            worker="n1", node="n1", labels={"zone": "eu"}, offer=offer, lease_s=1e6
        )
        try:
            async with client_of(server.app) as client:
                yield Place(cluster, server, client, folder)
        finally:
            # the server closes the store, and a manager that leads a run would wait for it
            await cluster.stop()


async def test_a_client_sends_the_code_of_a_test_and_its_run_is_a_job_of_the_leaders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.py").write_text("#" + "x" * 700_000)
    caplog.set_level(logging.INFO, "mainstay.web.audit")
    async with place(tmp_path) as at:
        source = f"import prices\n{GET}"
        handle = await at.submit(source, FleetDemand(1, labels={"zone": "eu"}, wait="5m"), key="nightly", priority=7)
        again = await at.submit(source, FleetDemand(1, labels={"zone": "eu"}, wait="5m"), key="nightly")
        with pytest.raises(KeyConflict):
            await at.submit(source, FleetDemand(1, on_loss="fail"), key="nightly")

        (job,) = await at.jobs()
        bundles = at.cluster.managers["m1"].bundle_client()
        options = msgspec.msgpack.decode(job.payload, type=FleetOptions)
        manifest = await bundles.manifest(options.code)
        (published,) = (await bundles.listing()).bundles

    assert (handle.id, handle.created, again.id, again.created) == (job.id, True, job.id, False)
    assert (job.kind, job.name, job.priority, job.options.retry.retries) == ("load", "shop", 7, 0)
    assert (options.vus, options.demand.nodes, options.demand.most) == (20, 1, 20)
    assert options.spec.order.source == Source(file="shop.py")
    assert job.options.start_by_ms is not None
    assert job.options.start_by_ms - job.created_ms > 250_000
    assert [file.path for file in manifest.files] == ["prices.py", "shop.py"]
    assert published.by == "web:local"
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split()[0] for line in lines] == [
        "did=publish_bundle",
        "did=submit_run",
        "did=publish_bundle",
        "did=submit_run",
        "did=publish_bundle",
        "refused=submit_run",
    ]
    assert f"id={job.id}" in lines[1]
    assert not any("secret" in line for line in lines)


async def test_what_no_node_could_give_is_refused_by_its_option_and_nothing_is_sent(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        for nodes, options, error in (
            (3, {}, "nodes: it needs 3 nodes, and there are 1: n1"),
            (FleetDemand(labels={"zone": "moon"}), {}, "nodes: no node has zone=moon"),
            (FleetDemand(cores=9), {}, "cores: it needs 9 cores"),
            (0, {}, "nodes: 0 is out of range"),
            (1, {"retries": 3}, "retries: unknown option"),
        ):
            with pytest.raises(InvalidInput, match=error):
                await at.submit(nodes=nodes, **options)
        assert await at.jobs() == []
        assert (await at.cluster.managers["m1"].bundle_client().listing()).bundles == []


async def test_a_repeated_request_gets_its_run_although_nodes_and_bundle_have_gone(tmp_path: Path) -> None:
    """The answer to the first one was lost: a retry must not say that there is no run."""
    async with place(tmp_path) as at:
        handle = await at.submit(key="nightly")
        for session in await at.cluster.store.sessions():
            if session.node:
                await at.cluster.store.close_session(session.id)
        again = await at.submit(key="nightly")
        with pytest.raises(InvalidInput, match="no node runs slices"):
            await at.submit(key="another")

        (job,) = await at.jobs()
        run = msgspec.to_builtins(msgspec.msgpack.decode(job.payload, type=FleetOptions))
        same = await at.server.client.post(f"{API}/loads", json={"run": run, "key": "nightly"})

    assert (again.id, again.created) == (handle.id, False)
    assert (same.status_code, same.json()["created"]) == (200, False)


async def test_only_the_scope_code_brings_code_to_nodes(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    async with place(tmp_path, tokens=tokens) as at:
        for scope in ("read", "submit", "operate", "admin"):
            async with client_of(at.server.app, token=tokens.add(scope, [scope])) as weak:
                at.client = weak
                with pytest.raises(RequestRefused, match="this needs 'code'"):
                    await at.submit()
        async with client_of(at.server.app, token=tokens.add("ann", ["code"])) as ann:
            at.client = ann
            handle = await at.submit()
            # its owner may also end it
            assert (await handle.cancel("done")).status == "cancelled"


async def test_a_part_that_is_too_large_is_refused_before_it_is_read_and_a_false_one_is_not_stored(
    tmp_path: Path,
) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 100:
            sent += 1
            yield b"x" * 100_000

    content = pack(b"code", BundleLimits())
    digest, other = hashlib.sha256(b"code").hexdigest(), hashlib.sha256(b"other").hexdigest()
    path, headers = f"{API}/bundles/parts", {"Content-Type": "application/msgpack"}
    async with place(tmp_path) as at:
        large = await at.server.client.post(path, content=b"x" * 1_500_000, headers=headers)
        stream = await at.server.client.post(path, content=endless(), headers=headers)
        false, true = [
            await at.server.client.post(
                path, content=msgspec.msgpack.encode({"digest": each, "packed": content}), headers=headers
            )
            for each in (other, digest)
        ]
        asked = await at.server.client.post(f"{API}/bundles/missing", json={"digests": [digest, other]})
        unknown = await at.server.client.post(f"{API}/bundles/publish", json={"digest": other})

    assert (large.status_code, large.json()["type"]) == (413, "body_too_large")
    assert (stream.status_code, sent < 20) == (413, True)
    assert (false.status_code, false.json()["type"], false.json()["field"]) == (422, "bundle_corrupt", "packed")
    assert true.status_code == 200
    assert asked.json() == {"digests": [other]}
    assert (unknown.status_code, unknown.json()["type"]) == (409, "bundle_missing")


class Planned:
    """A run as its client sends it, to be changed by a test."""

    def __init__(self, at: Place, body: dict[str, Any]) -> None:
        self._at = at
        self.body = body

    async def post(self, path: str, value: Any) -> httpx.Response:
        """Send it with another value at this path."""
        body = json.loads(json.dumps(self.body))
        *steps, last = path.split(".")
        inner = body
        for step in steps:
            inner = inner[step]
        inner[last] = value
        return await self._at.server.client.post(f"{API}/loads", json=body)


async def planned(at: Place) -> Planned:
    """One whose code is published."""
    await at.submit(key="first")
    (job,) = await at.jobs()
    run = msgspec.to_builtins(msgspec.msgpack.decode(job.payload, type=FleetOptions))
    return Planned(at, {"run": run})


async def test_a_run_is_checked_by_the_paths_of_its_fields(tmp_path: Path) -> None:
    order = "run.spec.order"
    async with place(tmp_path) as at:
        run = await planned(at)
        for path, value, field, rule in (
            (f"{order}.source.file", "../../etc/passwd", None, "is not below the root of a bundle"),
            (f"{order}.source.file", "/etc/passwd", None, "is not below the root of a bundle"),
            (f"{order}.source.file", "other.py", None, "is not in the bundle"),
            (f"{order}.source.folder", "/tmp", None, "is a folder of another machine"),
            (f"{order}.source.classes", {"Shop": "os:system('x')"}, f"{order}.source.file", "either the file"),
            ("run.code", "f" * 64, None, "is not stored; publish the bundle again"),
            ("run.code", "shop", None, "is not the digest of a bundle"),
            ("run.code", "", None, "publish the bundle of the test"),
            ("run.demand.nodes", 3, "run.demand", "it needs 3 nodes"),
            ("run.demand.nodes", "two", None, "expected int"),
            ("run.demand.nodes", 21, None, "more than the 20 users"),
            ("run.demand.labels", {"zone": " "}, None, "is not a label"),
            ("run.on_loss", "ignore", None, "invalid enum value"),
            ("run.vus", 7, f"{order}.options", "differ from those of the run"),
            ("run.schema", 99, None, "is that of a newer Mainstay"),
            ("run.processes", 2, None, "is for one machine"),
            (f"{order}.plan.workflows", {}, None, "has no workflow"),
            (f"{order}.plan.workflows.Shop.users", {"points": []}, None, "has no points"),
            (f"{order}.plan.workflows.Shop.model", "open", None, "either users or arrivals"),
            (f"{order}.plan.workflows.Shop.drain_s", -1, None, "must be a number from 0"),
            (f"{order}.plan.graph.after", {"Shop": ["Shop"]}, None, "wait for each other"),
            (f"{order}.steps", {"Other": []}, None, "is about Other"),
            ("run.spec.methods", {}, None, "is about nothing"),
            ("run.spec.header.name", "other", None, "must be that of the test"),
            ("run.spec.header.workflows", [{"name": "Other"}], "run.spec.header.workflows[0].name", "not a workflow"),
            ("run.spec.processes", 0, None, "out of range"),
            ("wait", "soon", None, "With a unit"),
            ("retries", 3, None, "unknown option"),
        ):
            answer = await run.post(path, value)

            assert answer.status_code == 422, (path, answer.text)
            told = answer.json()
            assert (told["field"], rule.lower() in told["detail"].lower()) == (field or path, True), (path, told)
        # it is accepted as it is, and it is the run that was submitted before
        same = await run.post("key", "first")
        assert (same.status_code, same.json()["created"]) == (200, False)
        assert len(await at.jobs()) == 1


async def test_a_server_without_a_cluster_takes_neither_code_nor_runs() -> None:
    async with serving() as server:
        for path, body in (
            ("loads", {"run": {}}),
            ("loads/placement", {"demand": {}}),
            ("bundles/missing", {"digests": []}),
        ):
            answer = await server.client.post(f"{API}/{path}", json=body)
            assert (answer.status_code, answer.json()["type"]) == (404, "no_cluster")


async def test_a_cluster_whose_managers_are_away_is_asked_again_later(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        run = await planned(at)
        at.server.site.cluster.bundles._tries = 1  # type: ignore[union-attr]
        await at.cluster.managers["m1"].bundles.stop()

        answers = [
            await run.post("key", "another"),
            await at.server.client.get(f"{API}/bundles/limits"),
        ]

    assert [(each.status_code, each.json()["type"]) for each in answers] == [(503, "no_manager")] * 2
    assert all("Retry-After" in each.headers for each in answers)
