"""What a job printed on a node, seen by an operator: kept, live, and with its gaps named."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstay.bus import Bus, MemoryBusNetwork
from mainstay.cluster.cli.job_output import show_output
from mainstay.cluster.cluster_service import ClusterClient, ClusterService
from mainstay.cluster.node_output import NodeOutput
from mainstay.cluster.output_follow import OutputReader
from mainstay.cluster.output_messages import AttemptQuery, JobOutput, JobOutputQuery, OutputChunk, OutputReply
from mainstay.cluster.output_requests import OutputRequests
from mainstay.errors import JobNotFound
from mainstay.lifecycle import Move, completion
from mainstay.stores import Change
from mainstay.testing import MemoryStore, VirtualClock, run_virtual
from mainstay.worker import output_path
from mainstay.worker.output_file import AttemptOutput
from tests.cluster.local_clusters import running_cluster, until
from tests.conformance.world import World

SESSION = f"n1.{'a' * 32}"


class OutputWorld:
    """A manager, an operator, and a node n1 that runs a job; files instead of engines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.direct = World(self.store, self.clock)
        self.network = MemoryBusNetwork()
        self.manager = self.network.client("manager.m1")
        self.outputs = OutputRequests(self.manager, self.store)
        self.service = ClusterService(
            self.manager,
            self,  # type: ignore[arg-type]  # it shows output only
            manager="m1",
            cluster="test",
            environment="default",
        )
        self.client = ClusterClient(self.network.client("operator.ann"), name="ann", cluster="test")
        self.tasks: list[asyncio.Task[None]] = []

    async def output(self, query: JobOutputQuery) -> JobOutput:
        return await self.outputs.output(query)

    async def start(self) -> None:
        await self.service.start()
        await self.node("n1")

    async def node(self, name: str) -> None:
        bus = self.network.client(f"node.{name}")
        service = NodeOutput(bus, name, str(self.folder))
        requests = await bus.subscribe(f"control.node.{name}.output")
        self.tasks += [
            asyncio.create_task(service.run()),
            asyncio.create_task(self.answer(bus, requests, service.answer)),
        ]

    async def answer(self, bus: Bus, requests: Any, answer: Callable[[bytes], Any]) -> None:
        async for message in requests:
            await bus.publish(message.reply, msgspec.msgpack.encode(await answer(message.body)))

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.service.stop()
        await self.store.close()

    def file(self, job: str, token: int = 1) -> AttemptOutput:
        return AttemptOutput(output_path(self.folder, job, token))

    async def end(self, job: Any) -> None:
        move = completion(None, starts=1, started_ms=None)
        change = Change(before=job, moves=(move,), actor=job.session, at_ms=self.clock.now_ms(), holder=job.session)
        assert [each.outcome for each in await self.store.apply([change])] == ["applied"]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[OutputWorld]:
    made = OutputWorld(tmp_path)
    await made.start()
    yield made
    await made.stop()


async def test_the_output_of_a_job_is_read_from_its_node_also_after_its_end(world: OutputWorld) -> None:
    await world.direct.open(SESSION)
    job = await world.direct.running(SESSION)
    file = world.file(job.id)
    file.write("one\ntwo\n")

    during = await world.client.output(JobOutputQuery(job=job.id))
    await world.end(job)
    file.close()
    after = await world.client.output(JobOutputQuery(job=job.id, after=4))

    assert (during.node, during.token, during.settled, during.output.data) == ("n1", 1, False, b"one\ntwo\n")
    assert (after.node, after.token, after.settled, after.output.data) == ("n1", 1, True, b"two\n")


async def test_each_attempt_has_its_own_output_on_its_own_node(world: OutputWorld) -> None:
    await world.direct.open(SESSION)
    first = await world.direct.running(SESSION)
    world.file(first.id, 1).write("first\n")
    back = Move(to="pending", reason="again", fields={"releases": 1})
    change = Change(before=first, moves=(back,), actor=SESSION, at_ms=world.clock.now_ms(), holder=SESSION)
    await world.store.apply([change])
    [second] = await world.store.claim([first.queue], SESSION, 1)
    world.file(second.id, 2).write("second\n")

    assert (await world.client.output(JobOutputQuery(job=first.id))).output.data == b"second\n"
    assert (await world.client.output(JobOutputQuery(job=first.id, token=1))).output.data == b"first\n"


async def test_what_is_missing_is_explained(world: OutputWorld) -> None:
    waiting = await world.direct.submit()
    await world.direct.open(SESSION)
    silent = await world.direct.running(SESSION)
    away = f"n9.{'b' * 32}"
    await world.direct.open(away)
    elsewhere = await world.direct.running(away)

    async def missing(job: str) -> str:
        return (await world.client.output(JobOutputQuery(job=job))).missing

    assert await missing(waiting.id) == "it has not begun"
    assert "printed nothing" in await missing(silent.id)
    assert "n9 does not answer" in await missing(elsewhere.id)
    with pytest.raises(JobNotFound):
        await world.client.output(JobOutputQuery(job="018bcfe5-6800-7000-8000-0123456789ab"))


async def test_an_answer_of_a_node_that_is_no_output_is_refused(world: OutputWorld) -> None:
    hostile = f"n2.{'b' * 32}"
    await world.direct.open(hostile)
    job = await world.direct.running(hostile)
    bus = world.network.client("node.n2")
    answers = iter(
        [
            msgspec.msgpack.encode(OutputReply(kept=True, end=1 << 20, data=b"x" * (1 << 19))),
            msgspec.msgpack.encode(OutputReply(kept=True, start=5, end=3, data=b"xx")),
            b"\xff" * 100,
            b"\x91" * 100_000,
        ]
    )

    async def answer(_: bytes) -> Any:
        return msgspec.Raw(next(answers))

    requests = await bus.subscribe("control.node.n2.output")
    world.tasks.append(asyncio.create_task(world.answer(bus, requests, answer)))
    for _ in range(4):
        found = await world.client.output(JobOutputQuery(job=job.id))
        assert found.missing.startswith("n2 gave an answer")
        assert not found.output.kept


async def test_a_node_that_does_not_answer_delays_no_other_operator(world: OutputWorld) -> None:
    await world.direct.open(SESSION)
    running = await world.direct.running(SESSION)
    world.file(running.id).write("one\n")
    mute = f"n2.{'b' * 32}"
    await world.direct.open(mute)
    stuck = await world.direct.running(mute)
    asked = await world.network.client("node.n2").subscribe("control.node.n2.output")

    waiting = asyncio.create_task(world.client.output(JobOutputQuery(job=stuck.id)))
    await anext(asked)
    found = await world.client.output(JobOutputQuery(job=running.id))

    assert found.output.data == b"one\n"
    assert not waiting.done()
    waiting.cancel()


def test_a_follower_gets_what_is_printed_while_it_follows_and_ends_with_the_job(tmp_path: Path) -> None:
    shown = io.StringIO()

    async def follow() -> int:
        world = OutputWorld(tmp_path)
        await world.start()
        await world.direct.open(SESSION)
        job = await world.direct.running(SESSION)
        file = world.file(job.id)
        file.write("before\n")
        following = asyncio.create_task(show_output(world.client, job.id, token=0, follow=True, to=shown))
        for number in range(20):
            await asyncio.sleep(0.25)
            file.write(f"line {number}\n")
            file.flush()
        await asyncio.sleep(0.3)
        live = shown.getvalue()
        assert live.endswith("line 19\n")
        await world.end(job)
        file.write("last\n")
        file.close()
        code = await following
        await world.stop()
        return code

    assert run_virtual(follow()) == 0
    assert shown.getvalue() == "before\n" + "".join(f"line {number}\n" for number in range(20)) + "last\n"


def test_nothing_is_published_while_no_operator_follows(tmp_path: Path) -> None:
    async def listen() -> int:
        world = OutputWorld(tmp_path)
        await world.start()
        await world.direct.open(SESSION)
        job = await world.direct.running(SESSION)
        world.file(job.id).write("one\n")
        heard = await world.network.client("operator.bob").subscribe("telemetry.output.*")
        await world.client.output(JobOutputQuery(job=job.id))
        await asyncio.sleep(5)
        waiting = heard.waiting
        await world.stop()
        return waiting

    assert run_virtual(listen()) == 0


def test_a_text_that_controls_a_terminal_is_shown_escaped(tmp_path: Path) -> None:
    shown = io.StringIO()

    async def show() -> None:
        world = OutputWorld(tmp_path)
        await world.start()
        await world.direct.open(SESSION)
        job = await world.direct.running(SESSION)
        world.file(job.id).write("red \x1b[31m\ttab\x00 50 %\r100 %\r\n")
        await show_output(world.client, job.id, token=0, follow=False, to=shown)
        await world.stop()

    run_virtual(show())
    assert shown.getvalue() == "red \\x1b[31m\ttab\\x00 50 %\n100 %\n"


async def test_a_node_answers_a_damaged_request(tmp_path: Path) -> None:
    node = NodeOutput(MemoryBusNetwork().client("node.n1"), "n1", str(tmp_path))
    for body in (b"", b"\xff", b"\x91" * 9, msgspec.msgpack.encode(AttemptQuery(job="../../x", token=1))):
        assert (await node.answer(body)).error


def test_gaps_are_counted_and_repeats_are_skipped() -> None:
    reader = OutputReader()

    def chunk(start: int, data: bytes) -> str:
        return reader.chunk(OutputChunk(job="x", token=1, start=start, data=data))

    assert chunk(0, b"abc") == "abc"
    assert chunk(0, b"abc") == ""
    assert chunk(2, b"cd") == "d"
    assert chunk(1004, b"e\xc3") == "[1000 bytes not shown: only the newest are kept]\ne"
    assert chunk(1006, b"\xa4") == "ä"
    assert reader.missed == 1000


@pytest.mark.slow
async def test_what_jobs_print_on_a_node_is_seen_and_kept(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "c", managers=1) as cluster:
        await cluster.ready()
        go = tmp_path / "go"
        jobs = [await cluster.submit("talk", name=name, file=str(go)) for name in ("ann", "bob")]
        jobs.append(await cluster.submit("talk_apart", name="eve"))
        shown = io.StringIO()
        follows = asyncio.create_task(show_output(cluster.client, jobs[0], token=0, follow=True, to=shown))

        async def begun() -> bool | None:
            return "ann begins" in shown.getvalue() or None

        await until(begun)
        go.touch()
        assert await follows == 0
        await cluster.settled(jobs)
        found = [await cluster.client.output(JobOutputQuery(job=job)) for job in jobs]

    assert shown.getvalue() == "ann begins\nann in a thread\n"
    texts = [each.output.data.decode() for each in found]
    assert texts[:2] == [f"{name} begins\n{name} in a thread\n" for name in ("ann", "bob")]
    assert texts[2].startswith("eve apart\n")
    assert "logged" in texts[2]
