"""The lead `placement` in virtual time: who leads when, and that no duty outlives its lease.

The numbers: lease 10 s, renewal every 3 s, step-down 3 s before the end, a look every second.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from mainstay.control import PLACEMENT, PLACEMENT_LEASE_S, Control, Duties, Duty
from mainstay.errors import InvalidInput, NotLeader
from mainstay.model import Leadership
from mainstay.stores.memory import MemoryStore
from mainstay.testing import FaultyStore, LoopClock, SimulatedHost, StoreFaults, VirtualLoop, run_virtual

#: what a takeover may take: a look, and calls that take part of a second
TAKEOVER_S = 2.0
#: the leader's own time: from sending a renewal to the step-down
OWN_S = 7.0


class Stint(msgspec.Struct):
    """One run of a duty."""

    node: str
    epoch: int
    began_s: float
    ended_s: float | None = None
    lease_end_s: float = 0.0
    """when its lease ended by the store's clock, as stored when the run ended"""


class Link(FaultyStore):
    """The connection of one node. `hang` stops all calls on their way, until `release`."""

    def __init__(self, store: MemoryStore, rng: random.Random) -> None:
        super().__init__(store, rng=rng)
        self._open = asyncio.Event()
        self._open.set()

    def hang(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def _travel(self, faults: StoreFaults) -> None:
        await self._open.wait()
        await super()._travel(faults)


class Cluster:
    """Nodes that compete for one lead, each on a simulated host of its own."""

    def __init__(self, loop: VirtualLoop, *names: str, seed: int = 0) -> None:
        self.loop = loop
        self.clock = LoopClock(loop)
        self._began_ms = self.clock.lease_ms()
        self.store = MemoryStore(self.clock)
        self.stints: list[Stint] = []
        self.hosts: dict[str, SimulatedHost] = {name: loop.host(name) for name in names}
        self.links = {name: Link(self.store, random.Random(f"{seed} {name}")) for name in names}
        self.sessions: dict[str, str] = {}
        self.services: dict[str, Duties] = {}

    async def start(self, name: str, run: Callable[[Leadership], Awaitable[object]] | None = None) -> None:
        """Open a session for a node and let it compete."""
        session = await Control(self.store, rng=random.Random(name)).claims.open_session(worker=name, lease_s=1e6)
        self.sessions[name] = session.id
        control = Control(self.links[name], rng=random.Random(f"{name} control"))

        async def duty(lead: Leadership) -> None:
            await self._record(name, lead, run)

        async def serve() -> None:
            self.services[name] = control.placement_duties(session.id, [Duty("stint", 0.5, duty)])
            self.services[name].start()

        await self.hosts[name].start(serve())

    async def _record(self, name: str, lead: Leadership, run: Callable[[Leadership], Awaitable[object]] | None) -> None:
        stint = Stint(name, lead.epoch, self.loop.time())
        self.stints.append(stint)
        try:
            await (asyncio.sleep(1e9) if run is None else run(lead))
        finally:
            stint.ended_s = self.loop.time()
            # the lease by the store's clock at this moment: 0 when another session has it; no call only reads it
            current = self.store._leaders.current(PLACEMENT)
            ours = current is not None and current.epoch == lead.epoch
            stint.lease_end_s = (current.until_ms - self._began_ms) / 1000 if current is not None and ours else 0.0

    @property
    def leaders(self) -> list[str]:
        return [name for name, service in self.services.items() if service.leading]

    def leads_of(self, name: str) -> list[Stint]:
        return [stint for stint in self.stints if stint.node == name]

    async def until(self, condition: Callable[[], bool], *, within_s: float) -> float:
        """Look every 10 ms; how long it took."""
        began_s = self.loop.time()
        while not condition():
            assert self.loop.time() - began_s < within_s, f"not within {within_s} s"
            await asyncio.sleep(0.01)
        return self.loop.time() - began_s

    def check(self, *, frozen: tuple[str, ...] = ()) -> None:
        """No two nodes in one epoch; no duty beyond its lease, except on hosts that were frozen."""
        by_epoch: dict[int, set[str]] = {}
        for stint in self.stints:
            by_epoch.setdefault(stint.epoch, set()).add(stint.node)
            if stint.ended_s is not None and stint.node not in frozen:
                assert stint.ended_s <= stint.lease_end_s, stint
        assert all(len(nodes) == 1 for nodes in by_epoch.values()), by_epoch


def simulated(story: Callable[[Cluster], Awaitable[None]], *names: str, seed: int = 0) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await story(Cluster(loop, *names, seed=seed))

    run_virtual(main(), seed=seed)


async def led_by_a(cluster: Cluster) -> None:
    """Both compete, and a leads."""
    await cluster.start("a")
    await cluster.until(lambda: cluster.leaders == ["a"], within_s=TAKEOVER_S)
    await cluster.start("b")
    await asyncio.sleep(5)
    assert cluster.leaders == ["a"]


def test_the_numbers_are_those_of_the_contract() -> None:
    async def story(cluster: Cluster) -> None:
        sent: list[float] = []
        link = cluster.links["a"]
        lead = link.lead

        async def noted(*args: Any) -> Leadership:
            sent.append(cluster.loop.time())
            return await lead(*args)

        link.lead = noted  # type: ignore[method-assign]
        await cluster.start("a")
        await asyncio.sleep(30)

        assert PLACEMENT_LEASE_S == 10.0
        assert {round(after - before, 6) for before, after in pairwise(sent)} == {3.0}

    simulated(story, "a")


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_whose_session_is_closed_is_replaced_within_two_seconds(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await led_by_a(cluster)
        cluster.hosts["a"].crash()
        await cluster.store.close_session(cluster.sessions["a"])

        await cluster.until(lambda: "b" in cluster.leaders, within_s=TAKEOVER_S)
        cluster.check()

    simulated(story, "a", "b", seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_disappears_is_replaced_when_its_lease_is_over(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await led_by_a(cluster)
        cluster.hosts["a"].crash()

        took_s = await cluster.until(lambda: "b" in cluster.leaders, within_s=PLACEMENT_LEASE_S + TAKEOVER_S)
        assert took_s > PLACEMENT_LEASE_S - 3.1
        cluster.check()

    simulated(story, "a", "b", seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_stops_hands_over_within_two_seconds(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await led_by_a(cluster)
        await cluster.services["a"].stop()
        assert cluster.leads_of("a")[-1].ended_s == cluster.loop.time()

        await cluster.until(lambda: "b" in cluster.leaders, within_s=TAKEOVER_S)
        cluster.check()

    simulated(story, "a", "b", seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_is_cut_off_stops_before_its_lease_ends_and_another_leads(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await led_by_a(cluster)
        cluster.links["a"].faults = StoreFaults(unavailable=True)
        cut_s = cluster.loop.time()

        stopped_s = await cluster.until(lambda: cluster.leaders == [], within_s=OWN_S + 0.1)
        assert stopped_s > OWN_S - 3.1
        await cluster.until(lambda: cluster.leaders == ["b"], within_s=PLACEMENT_LEASE_S + TAKEOVER_S - stopped_s)
        assert cluster.loop.time() - cut_s > PLACEMENT_LEASE_S - 3.1
        cluster.check()

        # a quiet heal: it follows
        cluster.links["a"].faults = StoreFaults()
        await asyncio.sleep(30)
        assert cluster.leaders == ["b"]
        assert [stint.epoch for stint in cluster.stints] == [1, 2]

    simulated(story, "a", "b", seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_whose_renewal_hangs_stops_by_its_own_clock(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await led_by_a(cluster)
        cluster.links["a"].hang()

        await cluster.until(lambda: cluster.leaders == [], within_s=OWN_S + 0.1)
        await cluster.until(lambda: cluster.leaders == ["b"], within_s=5.1)
        cluster.check()
        cluster.links["a"].release()
        await asyncio.sleep(30)
        assert cluster.leaders == ["b"]
        cluster.check()

    simulated(story, "a", "b", seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_when_the_store_stands_still_no_node_leads_and_one_does_afterwards(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await led_by_a(cluster)
        for link in cluster.links.values():
            link.hang()
        await cluster.until(lambda: cluster.leaders == [], within_s=OWN_S + 0.1)
        await asyncio.sleep(60)
        assert cluster.leaders == []

        for link in cluster.links.values():
            link.release()
        await cluster.until(lambda: len(cluster.leaders) == 1, within_s=TAKEOVER_S)
        cluster.check()

    simulated(story, "a", "b", seed=seed)


def test_a_renewal_that_is_answered_too_late_does_not_count() -> None:
    async def story(cluster: Cluster) -> None:
        await led_by_a(cluster)
        await cluster.services["b"].stop()
        # each renewal takes 4 s to the store, and its answer 4 s back
        link, lead = cluster.links["a"], cluster.links["a"].lead
        slow = True

        async def late(*args: Any) -> Leadership:
            if not slow:
                return await lead(*args)
            await asyncio.sleep(4)
            found = await lead(*args)
            await asyncio.sleep(4)
            return found

        link.lead = late  # type: ignore[method-assign]
        await cluster.until(lambda: cluster.leaders == [], within_s=OWN_S + 0.1)
        runs = len(cluster.stints)
        await asyncio.sleep(60)
        assert len(cluster.stints) == runs
        cluster.check()

        slow = False
        await cluster.until(lambda: cluster.leaders == ["a"], within_s=8 + TAKEOVER_S)

    simulated(story, "a", "b")


@pytest.mark.parametrize("seed", range(10))
def test_a_leader_that_is_paused_inside_a_write_is_refused_and_follows(seed: int) -> None:
    """Scenario 15: the write leaves the host when it goes on, 60 s later."""
    refusals: list[NotLeader] = []

    async def story(cluster: Cluster) -> None:
        paused = asyncio.Event()

        async def write(lead: Leadership) -> None:
            paused.set()
            await asyncio.sleep(0.2)
            try:
                await cluster.links["a"].apply([], lead=lead)
            except NotLeader as refusal:
                refusals.append(refusal)
                raise

        await cluster.start("a", write)
        await cluster.until(lambda: cluster.leaders == ["a"], within_s=TAKEOVER_S)
        await cluster.start("b")
        await asyncio.sleep(5)
        paused.clear()
        await paused.wait()
        cluster.hosts["a"].freeze()

        await cluster.until(lambda: "b" in cluster.leaders, within_s=PLACEMENT_LEASE_S + TAKEOVER_S)
        await asyncio.sleep(60)
        cluster.hosts["a"].thaw()
        await cluster.until(lambda: cluster.leaders == ["b"], within_s=0.1)
        await asyncio.sleep(30)
        assert cluster.leaders == ["b"]
        assert {stint.epoch for stint in cluster.leads_of("a")} == {1}
        assert {stint.epoch for stint in cluster.leads_of("b")} == {2}
        cluster.check(frozen=("a",))

    simulated(story, "a", "b", seed=seed)
    for refusal in refusals:
        assert (refusal.holder or "").startswith("b.")
        assert refusal.epoch == 2


def test_a_refusal_names_the_current_leader() -> None:
    async def story(cluster: Cluster) -> None:
        first = await cluster.store.lead(PLACEMENT, "a", 10.0)
        await cluster.store.resign(first)
        with pytest.raises(NotLeader) as free:
            await cluster.store.apply([], lead=first)
        await cluster.store.lead(PLACEMENT, "b", 10.0)
        with pytest.raises(NotLeader) as taken:
            await cluster.store.apply([], lead=first)

        assert (free.value.holder, free.value.epoch) == (None, 1)
        assert (taken.value.holder, taken.value.epoch) == ("b", 2)

    simulated(story)


@pytest.mark.parametrize("seed", range(30))
def test_a_flapping_store_has_at_most_one_leader_and_no_duty_outlives_its_lease(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        rng = random.Random(seed)
        for name in cluster.hosts:
            await cluster.start(name)
        for _ in range(60):
            link = cluster.links[rng.choice(list(cluster.hosts))]
            weather = rng.choice(["out", "slow", "lossy", "hang", "fine", "fine"])
            link.release()
            link.faults = StoreFaults()
            if weather == "out":
                link.faults = StoreFaults(unavailable=True)
            elif weather == "slow":
                link.faults = StoreFaults(delay_s=rng.choice([1.0, 5.0, 20.0]))
            elif weather == "lossy":
                link.faults = StoreFaults(lost_calls=0.4, lost_answers=0.4)
            elif weather == "hang":
                link.hang()
            await asyncio.sleep(rng.uniform(0.5, 8.0))
            assert len(cluster.leaders) <= 1, cluster.leaders
        for link in cluster.links.values():
            link.faults = StoreFaults()
            link.release()
        await cluster.until(lambda: len(cluster.leaders) == 1, within_s=2 * PLACEMENT_LEASE_S + TAKEOVER_S)
        cluster.check()

    simulated(story, "a", "b", "c", seed=seed)


def test_a_duty_that_ignores_its_end_is_not_run_again_and_delays_only_its_own_node() -> None:
    async def story(cluster: Cluster) -> None:
        runs: list[float] = []

        async def stubborn(_: Leadership) -> None:
            runs.append(cluster.loop.time())
            try:
                await asyncio.sleep(1e9)
            except asyncio.CancelledError:
                await asyncio.sleep(30)

        await cluster.start("a", stubborn)
        await cluster.until(lambda: cluster.leaders == ["a"], within_s=TAKEOVER_S)
        await cluster.start("b")
        await asyncio.sleep(5)
        cluster.links["a"].faults = StoreFaults(unavailable=True)
        await cluster.until(lambda: cluster.leaders == ["b"], within_s=PLACEMENT_LEASE_S + TAKEOVER_S)
        cluster.links["a"].faults = StoreFaults()
        await asyncio.sleep(120)
        assert (len(runs), cluster.leaders) == (1, ["b"])

    simulated(story, "a", "b")


def test_stopping_while_the_store_hangs_takes_no_longer_than_two_leases() -> None:
    async def story(cluster: Cluster) -> None:
        await led_by_a(cluster)
        cluster.links["a"].hang()
        await asyncio.sleep(4)
        async with asyncio.timeout(2 * PLACEMENT_LEASE_S + 0.1):
            await cluster.services["a"].stop()
        cluster.check()

    simulated(story, "a", "b")


def test_a_renewal_that_cannot_come_in_time_is_refused() -> None:
    with pytest.raises(InvalidInput, match="renew_s: 8 does not renew a lease of 10 s before its margin begins"):
        Duties(MemoryStore(), "s", [], lease_s=10, renew_s=8, margin_s=3)
