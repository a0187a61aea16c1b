"""The programs of a cluster under TLS, as an operator starts them: certificates, bus, managers, nodes, commands."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mainstay.cluster.address import parse_address
from mainstay.cluster.certs import issue, make_authority, write_server_config
from mainstay.cluster.cluster_service import ClusterClient
from mainstay.control import Control
from mainstay.stores import open_store
from servers.server import free_port
from tests.cluster.local_clusters import until

pytestmark = pytest.mark.slow

APP = """
from mainstay import App
app = App("memory:")

@app.task(name="add")
async def add(a: int, b: int) -> int:
    return a + b

@app.task(name="mail", queue="mail")
async def mail() -> str:
    return "sent"
"""
SOON = {"MAINSTAY_CLUSTER_JOIN_LONGEST_WAIT": "0.5s"}


class Programs:
    """Processes of `mainstay` in a folder, each with its output in a file."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.dead_port = free_port()
        self.running: dict[str, asyncio.subprocess.Process] = {}

    def url(self, member: str) -> str:
        """With a dead seed before the live one."""
        files = "&".join(f"{name}=certs/{member}.{end}" for name, end in (("cert", "pem"), ("key", "key")))
        return f"tls://localhost:{self.dead_port},localhost:{self.port}?ca=certs/ca.pem&{files}"

    async def start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "mainstay",
                *words,
                cwd=self.folder,
                env=os.environ | SOON,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def ask(self, *words: str, url: str = "") -> tuple[int, str]:
        """The exit code and the output of a command of an operator."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "mainstay",
            *words,
            cwd=self.folder,
            env=os.environ | SOON | {"MAINSTAY_CLUSTER_URL": url or self.url("operator-ann")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code after a signal."""
        process = self.running.pop(name)
        process.send_signal(number)
        async with asyncio.timeout(60):
            return await process.wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


@asynccontextmanager
async def programs(folder: Path) -> AsyncIterator[Programs]:
    made = Programs(folder, free_port())
    try:
        yield made
    finally:
        for process in made.running.values():
            process.kill()
        for process in made.running.values():
            await process.wait()


async def test_programs_that_wait_for_a_bus_end_cleanly_when_asked(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    url = f"nats://u:4nKx7PzQ2vLw9RtY@127.0.0.1:{free_port()}/shop"
    async with programs(tmp_path) as running:
        await running.start("node", "node", "join", url, "shop:app")
        await running.start("manager", "manager", url, "-s", f"sqlite:///{tmp_path / 'jobs.db'}")
        for name, lines in (("node", 2), ("manager", 1)):  # the parent of a node has a connection, too

            async def waits(name: str = name, lines: int = lines) -> bool | None:
                return running.log(name).count("nothing listens there") >= lines or None

            await until(waits)
            assert await running.end(name) == 0


def certify(certs: Path, port: int) -> None:
    """Certificates of two managers, two nodes and an operator; the second node may claim from one queue."""
    make_authority(certs, cluster="shop", environment="staging")
    for role, name in (("manager", "m1"), ("manager", "m2"), ("node", "n1"), ("operator", "ann")):
        issue(certs, role, name)
    issue(certs, "node", "n2", queues=["mail"])
    issue(certs, "server", "bus", hosts=["localhost"])
    write_server_config(certs, listen=f"127.0.0.1:{port}", server="bus")


async def complete(running: Programs) -> None:
    """Wait until both managers and both nodes work, as an operator sees it."""
    address = parse_address(running.url("operator-ann").replace("=certs/", f"={running.folder}/certs/"))
    bus = await address.connect("operator", timeout_s=60)
    client = ClusterClient(bus, name="ann", cluster=address.cluster, environment=address.environment)

    async def look() -> bool | None:
        found = await client.status()
        working = [node for node in found.nodes if len(node.beat.sessions) > 1]
        return len(working) == len(found.managers) == len(found.leads) == 2 or None

    await until(look)
    await bus.close()


async def test_two_managers_and_two_nodes_work_under_tls_whatever_starts_first(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    store_url = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with programs(tmp_path) as running:
        certify(tmp_path / "certs", running.port)
        for node, more in (("n1", ("--label", "zone=a")), ("n2", ("--cores", "1"))):
            await running.start(node, "node", "join", running.url(f"node-{node}"), "shop:app", *more)
        for manager in ("m1", "m2"):
            words = ("-s", store_url, "--blobs", f"file://{tmp_path / 'blobs'}")
            await running.start(manager, "manager", running.url(f"manager-{manager}"), *words)

            async def waits(name: str = manager) -> bool | None:
                return "nothing listens there" in running.log(name) or None

            await until(waits)
        await running.start("bus", "cluster", "bus", "certs/nats.conf")

        await complete(running)
        code, output = await running.ask("cluster", "status", "--json")
        assert code == 0, output
        status = json.loads(output)
        assert (status["cluster"], status["environment"], status["alarms"]) == ("shop", "staging", [])
        beats = {node["name"]: node["beat"] for node in status["nodes"]}
        assert (beats["n1"]["labels"], beats["n2"]["cores"]) == ({"zone": "a"}, 1)
        assert len(beats["n1"]["digest"]) == 64
        assert (await running.ask("cluster", "check"))[0] == 0

        # a node takes jobs from the queues of its certificate only
        assert await running.end("n1") == 0
        store = await open_store(store_url)
        try:
            control = Control(store)
            sums = [(await control.jobs.submit("add", {"a": 1, "b": 2})).id for _ in range(3)]
            mails = [(await control.jobs.submit("mail", {}, queue="mail")).id for _ in range(3)]

            async def sent() -> bool | None:
                return all(row is not None and row.settled_ms for row in await store.get(mails)) or None

            await until(sent)
            assert {row.status for row in await store.get(sums) if row} == {"pending"}
            assert {row.status for row in await store.get(mails) if row} == {"succeeded"}
            await running.start("n1", "node", "join", running.url("node-n1"), "shop:app")

            async def added() -> bool | None:
                return all(row is not None and row.status == "succeeded" for row in await store.get(sums)) or None

            await until(added)

            # an operator has the name of its certificate everywhere
            for words in (("jobs", "explain", sums[0]), ("cluster", "bundle", "list")):
                code, output = await running.ask(*words)
                assert code == 0, output
        finally:
            await store.close()

        # another certificate opens no other door
        code, output = await running.ask("cluster", "status", url=running.url("node-n1"))
        assert (code, "is of the node 'n1'" in output) == (2, True)

        # a drained node ends by itself, and is not an error for what started it
        assert (await running.ask("cluster", "drain", "n2"))[0] == 0
        async with asyncio.timeout(60):
            assert await running.running.pop("n2").wait() == 0
        # SIGHUP replaces the engines, and the node stays
        running.running["n1"].send_signal(signal.SIGHUP)

        async def rolled() -> bool | None:
            return "restarted engines" in running.log("n1") or None

        await until(rolled)
        assert [await running.end(name) for name in ("n1", "m1", "m2")] == [0, 0, 0]
