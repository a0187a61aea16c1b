"""The placement duty on a store: a node job from submit to result, and what survives the death of a leader."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mainstay.control.check import check
from mainstay.errors import NotLeader, StoreUnavailable
from mainstay.model import PLACE_QUEUE, Leadership
from mainstay.node import placement_duty
from mainstay.node.decisions import NodeJobView, decide
from mainstay.node.placement_duty import PlacementDuty
from mainstay.node.spec import LEADER, NodePolicy
from mainstay.stores import AnyChange, ChangeResult, JobStore, Page, Query, StoreProxy, open_store
from mainstay.testing import VirtualClock
from tests.node.fleet import FakeNode, job_of, pass_time, result_of, submit, units_of


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[JobStore]:
    opened = await open_store(url, clock=VirtualClock())
    try:
        yield opened
        report = await check(opened)
        assert report.violations == ()
    finally:
        await opened.close()


async def three(store: JobStore) -> list[FakeNode]:
    return [await FakeNode(store, name, 1).open() for name in ("n1", "n2", "n3")]


async def test_a_job_runs_on_every_node_and_then_once_at_the_leader(store: JobStore) -> None:
    nodes = await three(store)
    job_id = await submit(store)
    lead = await nodes[0].lead()
    duty = nodes[0].duty()

    await duty.round(lead)
    assert [await node.work() for node in nodes] == [1, 1, 1]
    await duty.round(lead)
    assert [await node.work() for node in nodes] == [1, 0, 0]
    await duty.round(lead)

    assert (await job_of(store, job_id)).status == "succeeded"
    result = await result_of(store, job_id)
    assert result.value == "leader by n1"
    assert result.succeeded == ("n1", "n2", "n3")


async def test_every_write_of_the_leader_names_its_epoch(store: JobStore) -> None:
    nodes = await three(store)
    job_id = await submit(store)
    lead = await nodes[0].lead()
    await nodes[0].duty().round(lead)
    await nodes[1].work()

    units = await units_of(store, job_id)
    for row_id in (job_id, *(unit.id for unit in units.values())):
        for event in (await store.events(row_id))[1:]:
            if event.actor == lead.holder:
                assert event.data["epoch"] == lead.epoch


async def test_a_leader_whose_time_is_over_writes_nothing(store: JobStore) -> None:
    nodes = await three(store)
    job_id = await submit(store)
    old = await nodes[0].lead()
    pass_time(store, 11)
    for node in nodes:
        await store.beat([node.id])
    assert (await nodes[1].lead()).epoch == old.epoch + 1
    with pytest.raises(NotLeader):
        await nodes[0].duty().round(old)
    assert (await job_of(store, job_id)).status == "pending"


async def test_the_job_is_in_the_reserved_queue_and_its_units_too(store: JobStore) -> None:
    nodes = await three(store)
    job_id = await submit(store)
    await nodes[0].duty().round(await nodes[0].lead())
    rows = [await job_of(store, job_id), *(await units_of(store, job_id)).values()]
    assert {row.queue for row in rows} == {PLACE_QUEUE}


async def test_a_node_that_restarts_gets_its_unit_at_its_new_session(store: JobStore) -> None:
    nodes = await three(store)
    job_id = await submit(store)
    lead = await nodes[0].lead()
    duty = nodes[0].duty()
    await duty.round(lead)
    await nodes[2].confirmed()
    await store.close_session(nodes[2].id)
    await nodes[0].control.sweeper.sweep()
    pass_time(store, 1)
    again = await FakeNode(store, "n3", 2).open()
    await duty.round(lead)
    assert await again.work() == 1
    assert (await units_of(store, job_id))["node/n3"].status == "succeeded"


async def test_a_node_that_missed_its_window_is_refused_and_the_refusal_is_recorded(store: JobStore) -> None:
    node = await FakeNode(store, "n1").open(standing=True)
    job_id = await submit(store)
    lead = await node.lead()
    await node.duty().round(lead)
    unit = (await units_of(store, job_id))["node/n1"]
    pass_time(store, 20)
    lead = await node.lead()
    await node.duty().round(lead)
    assert await node.confirm([unit]) == []
    assert [refusal.token for refusal in await store.refusals(unit.id)] == [1]


async def test_a_cancelled_job_stops_its_units(store: JobStore) -> None:
    nodes = await three(store)
    job_id = await submit(store)
    lead = await nodes[0].lead()
    duty = nodes[0].duty()
    await duty.round(lead)
    running = await nodes[1].confirmed()
    await nodes[0].control.operations.cancel(job_id, actor="me", reason="not needed")
    await duty.round(lead)
    assert (await job_of(store, job_id)).status == "cancelled"
    assert {unit.status for unit in (await units_of(store, job_id)).values()} == {"cancelled"}
    assert await nodes[1].complete(running) == 0


async def test_units_that_are_open_after_another_writer_settled_the_job_are_cancelled(store: JobStore) -> None:
    nodes = await three(store)
    job_id = await submit(store)
    lead = await nodes[0].lead()
    await nodes[0].duty().round(lead)
    await nodes[0].control.operations.force(job_id, "failed", actor="me", reason="by hand")
    successor = nodes[0].duty()
    await successor.clean_up(lead)
    assert {unit.status for unit in (await units_of(store, job_id)).values()} == {"cancelled"}


class RefusingStore(StoreProxy):
    """A store in which another writer is faster, or that fails, for the next writes."""

    def __init__(self, store: JobStore) -> None:
        super().__init__(store)
        self.next: list[Exception | None] = []

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        if not self.next:
            return await self._store.apply(changes, lead=lead, together=together)
        error = self.next.pop()
        if error is not None:
            raise error
        return [ChangeResult(outcome="conflict") for _ in changes]


@pytest.mark.parametrize("error", [None, StoreUnavailable("away")])
async def test_the_units_of_a_settled_job_are_cancelled_in_the_round_after_one_that_could_not(
    store: JobStore, error: Exception | None
) -> None:
    nodes = await three(store)
    job_id = await submit(store, timeout="5s")
    refusing = RefusingStore(store)
    duty, lead = nodes[0].duty(refusing), await nodes[0].lead()
    await duty.round(lead)
    pass_time(store, 6)
    await nodes[0].control.sweeper.sweep()
    assert (await job_of(store, job_id)).status == "timed_out"
    refusing.next = [error]
    with contextlib.suppress(StoreUnavailable):
        await duty.round(lead)
    await duty.round(lead)
    assert {unit.status for unit in (await units_of(store, job_id)).values()} == {"cancelled"}


async def test_a_clean_up_that_lost_a_race_is_finished_by_the_next_round(store: JobStore) -> None:
    nodes = await three(store)
    job_id = await submit(store)
    lead = await nodes[0].lead()
    await nodes[0].duty().round(lead)
    await nodes[0].control.operations.force(job_id, "failed", actor="me", reason="by hand")
    refusing = RefusingStore(store)
    successor = nodes[1].duty(refusing)
    refusing.next = [None]
    await successor.clean_up(lead)
    await successor.round(lead)
    assert {unit.status for unit in (await units_of(store, job_id)).values()} == {"cancelled"}


async def test_a_job_with_an_unreadable_payload_fails(store: JobStore) -> None:
    node = await FakeNode(store, "n1").open()
    job_id = (await node.control.jobs.submit("compact", {"n": 1}, kind="node")).id
    await node.duty().round(await node.lead())
    job = await job_of(store, job_id)
    assert job.status == "failed"
    assert job.error is not None
    assert job.error.code == "bad_arguments"


async def test_a_submit_wakes_the_leader(store: JobStore) -> None:
    node = await FakeNode(store, "n1").open()
    lead = await node.lead()
    duty = node.duty()
    running = asyncio.create_task(duty.run(lead))
    try:
        await asyncio.sleep(0)
        async with store.wake([f"session:{node.id}"]) as woken:
            await submit(store)
            assert await woken.wait(5)
        assert await node.work() == 1
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_job_past_its_deadline_is_timed_out_and_its_units_are_cancelled(store: JobStore) -> None:
    nodes = [await FakeNode(store, name).open(standing=True) for name in ("n1", "n2")]
    job_id = await submit(store, timeout="1m")
    lead = await nodes[0].lead()
    duty = nodes[0].duty()
    await duty.round(lead)
    for node in nodes:
        await node.confirmed()
    pass_time(store, 61)
    await nodes[0].control.sweeper.sweep()
    assert (await job_of(store, job_id)).status == "timed_out"
    await duty.round(await nodes[0].lead())
    assert {unit.status for unit in (await units_of(store, job_id)).values()} == {"cancelled"}


async def test_a_job_that_cannot_be_placed_keeps_no_other_job_waiting(
    store: JobStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = await three(store)
    broken = await submit(store, seed=1)
    other = await submit(store, seed=2)

    def damaged(view: NodeJobView, *rest: Any) -> list[Any]:
        if view.job.id == broken:
            raise ValueError("damaged")
        return decide(view, *rest)

    monkeypatch.setattr(placement_duty, "decide", damaged)
    await nodes[0].duty().round(await nodes[0].lead())
    assert (await job_of(store, other)).status == "running"
    assert f"cannot place a job job_id={broken}" in caplog.text


async def test_the_next_leader_continues_a_leader_phase_that_was_given_back_within_seconds(store: JobStore) -> None:
    nodes = await three(store)
    job_id = await submit(store, NodePolicy(has_local=False))
    lead = await nodes[0].lead()
    await nodes[0].duty().round(lead)
    rows = await nodes[0].confirmed()
    await nodes[0].control.attempts.release(rows, reason="its node takes no more work")
    await store.resign(lead)
    pass_time(store, 1)
    await nodes[1].duty().round(await nodes[1].lead())
    assert await nodes[1].work() == 1
    await nodes[1].duty().round(await nodes[1].lead())
    assert (await job_of(store, job_id)).status == "succeeded"


async def test_a_job_past_its_queue_deadline_does_not_begin(store: JobStore) -> None:
    job_id = await submit(store, queue_deadline="5s")
    pass_time(store, 6)
    nodes = await three(store)
    await nodes[0].duty().round(await nodes[0].lead())
    assert (await job_of(store, job_id)).status == "pending"
    await nodes[0].control.sweeper.sweep()
    assert (await job_of(store, job_id)).status == "timed_out"


async def test_a_job_for_later_costs_no_reads(store: JobStore) -> None:
    nodes = await three(store)
    for seed in range(5):
        await submit(store, seed=seed, delay="1h")
    counting = CountingStore(store)
    await nodes[0].duty(counting).round(await nodes[0].lead())
    assert counting.calls == ["find", "sessions"]


class CountingStore(StoreProxy):
    """A store that notes its calls."""

    def __init__(self, store: JobStore) -> None:
        super().__init__(store)
        self.calls: list[str] = []
        self._replace(self._noted)

    def _noted(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            return await method(*args, **kwargs)

        return call


# the death of a leader ------------------------------------------------------------------------------


class Killed(BaseException):
    """The process of a leader ends here."""


class DyingStore(StoreProxy):
    """A store whose caller dies at one of its calls: before or after it took effect."""

    def __init__(self, store: JobStore, at: int, *, after: bool) -> None:
        super().__init__(store)
        self._left = at
        self._after = after
        self._replace(self._dying)

    def _dying(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Killed
            answer = await method(*args, **kwargs)
            if self._left == 0:
                raise Killed
            return answer

        return call


async def _until_killed(duty: PlacementDuty, first: FakeNode, nodes: list[FakeNode]) -> bool:
    """Work until the leader is killed; False: it lived to the end of the job."""
    lead = await first.lead()
    for _ in range(6):
        try:
            await duty.round(lead)
        except Killed:
            return True
        for node in nodes:
            await node.work()
    return False


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("policy", [NodePolicy(), NodePolicy(has_leader=False), NodePolicy(has_local=False)])
async def test_a_leader_may_die_at_any_call_and_the_next_one_finishes_the_job(
    policy: NodePolicy, *, after: bool
) -> None:
    for at in range(1, 200):
        if not await _finished_by_another(policy, at, after=after):
            assert at > 10
            return
    raise AssertionError("the leader was killed every time")


async def _finished_by_another(policy: NodePolicy, at: int, *, after: bool) -> bool:
    store = await open_store("memory:", clock=VirtualClock())
    try:
        nodes = await three(store)
        job_id = await submit(store, policy)
        dying = DyingStore(store, at, after=after)
        if not await _until_killed(nodes[0].duty(dying), nodes[0], nodes):
            return False
        await store.close_session(nodes[0].id)
        pass_time(store, 1)
        await nodes[1].control.sweeper.sweep()
        restarted = await FakeNode(store, "n1", 2).open()
        living = [restarted, nodes[1], nodes[2]]
        lead = await nodes[1].lead()
        duty = nodes[1].duty()
        for _ in range(8):
            await duty.round(lead)
            for node in living:
                await node.work()
        assert (await job_of(store, job_id)).status == "succeeded"
        done = [unit.unit for node in (*living, nodes[0]) for unit in node.done]
        assert len(done) == len(set(done)), "the end of a unit counted twice"
        assert done.count(LEADER) == int(policy.has_leader)
        assert (await check(store)).violations == ()
        return True
    finally:
        await store.close()


class InterruptedStore(StoreProxy):
    """A store on which another leader makes a round before the units of a job are read."""

    def __init__(self, store: JobStore, other: PlacementDuty, lead: Leadership) -> None:
        super().__init__(store)
        self._rounds = [lambda: other.round(lead)]

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        if query.parent is not None and self._rounds:
            await self._rounds.pop()()
        return await self._store.find(query, cursor=cursor, limit=limit)


async def test_a_job_that_moves_while_its_units_are_read_keeps_its_new_units(store: JobStore) -> None:
    nodes = await three(store)
    job_id = await submit(store)
    lead = await nodes[0].lead()
    await nodes[0].duty(InterruptedStore(store, nodes[0].duty(), lead)).round(lead)
    assert {unit.status for unit in (await units_of(store, job_id)).values()} == {"dispatched"}


async def test_two_rounds_at_once_do_each_step_once(store: JobStore) -> None:
    nodes = await three(store)
    ids = [await submit(store, seed=seed) for seed in range(5)]
    lead = await nodes[0].lead()
    first, second = nodes[0].duty(), nodes[0].duty()
    for _ in range(10):
        await asyncio.gather(first.round(lead), second.round(lead))
        for node in nodes:
            await node.work()
    assert {(await job_of(store, each)).status for each in ids} == {"succeeded"}
    leaders = [unit for node in nodes for unit in node.done if unit.unit == LEADER]
    assert len(leaders) == 5


class WatchedStore(StoreProxy):
    """A store that counts how many jobs have their units read at the same time."""

    def __init__(self, store: JobStore) -> None:
        super().__init__(store)
        self.most = 0
        self._now = 0

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        if query.parent is None:
            return await self._store.find(query, cursor=cursor, limit=limit)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(0)
            return await self._store.find(query, cursor=cursor, limit=limit)
        finally:
            self._now -= 1


async def test_some_jobs_are_advanced_at_a_time_and_never_all_of_many(store: JobStore) -> None:
    nodes = await three(store)
    ids = [await submit(store, seed=seed) for seed in range(20)]
    watched = WatchedStore(store)
    await nodes[0].duty(watched).round(await nodes[0].lead())
    assert {(await job_of(store, each)).status for each in ids} == {"running"}
    assert watched.most == 8
