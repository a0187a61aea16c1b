"""The bus that misbehaves on demand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from mainstay.bus import Bus, BusMessage, Subscription
from mainstay.errors import InvalidInput, NoResponders, RequestTimeout
from mainstay.testing import BusFaults, FaultyBusNetwork, HostClock, VirtualLoop, run_virtual


def faulty(faults: BusFaults | None = None, seed: int = 1) -> FaultyBusNetwork:
    return FaultyBusNetwork(rng=random.Random(seed), faults=faults)


async def send(bus: Bus, count: int) -> None:
    for n in range(count):
        await bus.publish("data.x", str(n).encode())


async def read_all(subscription: Subscription[BusMessage]) -> list[int]:
    """What has arrived after an hour."""
    await asyncio.sleep(3600)
    return [int((await anext(subscription)).body) for _ in range(subscription.waiting)]


async def exchange(network: FaultyBusNetwork, count: int) -> list[int]:
    """What of `count` messages from a reaches b."""
    subscription = await network.client("b").subscribe("data.x", limit=10_000)
    await send(network.client("a"), count)
    return await read_all(subscription)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_a_message_takes_the_latency_of_its_link() -> None:
    async def main() -> list[float]:
        network = faulty(BusFaults(latency_s=0.5))
        network.links["a", "c"] = BusFaults(latency_s=2)
        near, far = await network.client("b").subscribe("data.x"), await network.client("c").subscribe("data.x")
        await send(network.client("a"), 1)
        await anext(near)
        arrivals = [now_s()]
        await anext(far)
        return [*arrivals, now_s()]

    assert run_virtual(main()) == [0.5, 2.0]


def test_messages_of_a_link_stay_in_order_in_spite_of_jitter() -> None:
    async def main() -> list[int]:
        return await exchange(faulty(BusFaults(latency_s=0.1, jitter_s=10)), 100)

    assert run_virtual(main()) == list(range(100))


def test_a_message_waits_for_those_before_it_when_the_link_gets_faster() -> None:
    async def main() -> list[float]:
        network, arrivals = faulty(BusFaults(latency_s=10)), []
        subscription, sender = await network.client("b").subscribe("data.x"), network.client("a")
        await send(sender, 1)
        network.faults = BusFaults()
        await send(sender, 1)
        for _ in range(2):
            await anext(subscription)
            arrivals.append(now_s())
        return arrivals

    assert run_virtual(main()) == [10.0, 10.0]


def test_the_order_is_kept_on_a_real_loop() -> None:
    async def main() -> list[int]:
        network = faulty(BusFaults(latency_s=0.001, jitter_s=0.01))
        subscription = await network.client("b").subscribe("data.x")
        await send(network.client("a"), 100)
        return [int((await anext(subscription)).body) for _ in range(100)]

    assert asyncio.run(main()) == list(range(100))


def test_lost_messages_never_arrive_and_are_counted() -> None:
    async def main() -> tuple[int, int]:
        network = faulty(BusFaults(lost=0.3))
        got = await exchange(network, 1000)
        assert got == sorted(set(got))
        return len(got), network.counts["lost"]

    arrived, lost = run_virtual(main())
    assert arrived + lost == 1000
    assert 200 < lost < 400


def test_duplicated_messages_arrive_twice() -> None:
    async def main() -> None:
        network = faulty(BusFaults(duplicated=0.2))
        got = await exchange(network, 1000)
        assert sorted(set(got)) == list(range(1000))
        assert len(got) == 1000 + network.counts["duplicated"]
        assert 100 < network.counts["duplicated"] < 300

    run_virtual(main())


def test_reordered_messages_are_overtaken() -> None:
    async def main() -> list[int]:
        network = faulty(BusFaults(reordered=0.5))
        subscription = await network.client("b").subscribe("data.x")
        sender = network.client("a")
        for n in range(20):
            await sender.publish("data.x", str(n).encode())
            await asyncio.sleep(0.1)
        return await read_all(subscription)

    got = run_virtual(main())
    assert got != list(range(20))
    assert sorted(got) == list(range(20))


def test_a_cut_works_in_one_direction_until_it_ends() -> None:
    async def main() -> None:
        network = faulty()
        a, b = network.client("a"), network.client("b")
        at_a, at_b = await a.subscribe("data.to-a"), await b.subscribe("data.to-b")
        network.cut("a", "b")
        await a.publish("data.to-b", b"0")
        await b.publish("data.to-a", b"1")
        assert (await read_all(at_a), await read_all(at_b)) == ([1], [])
        network.join("a", "b")
        await a.publish("data.to-b", b"2")
        assert await read_all(at_b) == [2]
        network.cut("a", "b")
        network.cut("b", "a")
        network.join_all()
        await a.publish("data.to-b", b"3")
        await b.publish("data.to-a", b"4")
        assert (await read_all(at_a), await read_all(at_b)) == ([4], [3])

    run_virtual(main())


def test_a_cut_concerns_all_clients_of_a_host() -> None:
    async def main() -> list[list[int]]:
        network = faulty()
        subscriptions = [await network.client(name, host="h1").subscribe("data.x") for name in ("parent", "engine")]
        network.cut("h0", "h1")
        await send(network.client("manager", host="h0"), 1)
        return [await read_all(subscription) for subscription in subscriptions]

    assert run_virtual(main()) == [[], []]


@pytest.mark.parametrize(("source", "destination", "processed"), [("a", "b", 0), ("b", "a", 1)])
def test_a_request_over_a_cut_times_out(source: str, destination: str, processed: int) -> None:
    async def main() -> int:
        network = faulty(BusFaults(latency_s=0.1))
        asking, answering = network.client("a"), network.client("b")
        asked = await answering.subscribe("control.echo")
        done = 0

        async def answer() -> None:
            nonlocal done
            async for message in asked:
                done += 1
                assert message.reply is not None
                await answering.publish(message.reply, b"")

        task = asyncio.create_task(answer())
        network.cut(source, destination)
        with pytest.raises(RequestTimeout):
            await asking.request("control.echo", b"", 5)
        assert now_s() == 5.0
        network.join_all()
        assert await asking.request("control.echo", b"", 5) == b""
        await asked.close()
        await task
        return done - 1

    assert run_virtual(main()) == processed


def test_requests_may_find_no_responders_although_there_are_some() -> None:
    async def main() -> int:
        network = faulty(BusFaults(no_responders=0.5))
        bus, refused = network.client("a"), 0
        subscription = await network.client("b").subscribe("control.echo")
        for _ in range(100):
            try:
                await bus.request("control.echo", b"", 1)
            except NoResponders:
                refused += 1
            except RequestTimeout:
                await anext(subscription)
        assert subscription.waiting == 0
        return refused

    assert 30 < run_virtual(main()) < 70


def test_a_slow_host_gets_its_messages_late_and_delays_no_other() -> None:
    async def main() -> tuple[list[float], float]:
        network = faulty()
        network.links["a", "slow"] = BusFaults(slow_s=2)
        slow, quick = await network.client("slow").subscribe("data.x"), await network.client("b").subscribe("data.x")
        await send(network.client("a"), 3)
        for _ in range(3):
            await anext(quick)
        quick_s, arrivals = now_s(), []
        for _ in range(3):
            await anext(slow)
            arrivals.append(now_s())
        return arrivals, quick_s

    assert run_virtual(main()) == ([2.0, 4.0, 6.0], 0.0)


def test_the_backlog_of_a_slow_host_is_bounded() -> None:
    async def main() -> None:
        network = faulty(BusFaults(slow_s=1, backlog=10))
        subscription, sender = await network.client("b").subscribe("data.x"), network.client("a")
        for lost in (20, 40):
            await send(sender, 30)
            assert await read_all(subscription) == list(range(10))
            assert network.counts["lost"] == lost

    run_virtual(main())


def test_a_message_on_its_way_to_a_closed_connection_is_lost() -> None:
    async def main() -> list[int]:
        network = faulty(BusFaults(latency_s=1))
        subscription = await network.client("b").subscribe("data.x")
        await send(network.client("a"), 1)
        network.disconnect("b")
        network.reconnect("b")
        return await read_all(subscription)

    assert run_virtual(main()) == []


def on_loop(main: Coroutine[Any, Any, None], loop: VirtualLoop) -> None:
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()


def test_a_message_on_its_way_outlives_the_crash_of_its_sender() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        network = faulty(BusFaults(latency_s=1))
        subscription = await network.client("b").subscribe("data.x")
        host = loop.host("a")
        host.start(send(network.client("a"), 3))
        await asyncio.sleep(0.5)
        host.crash()
        assert await read_all(subscription) == [0, 1, 2]

    on_loop(main(), loop)


def test_a_message_does_not_travel_by_the_clock_of_its_sender() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        network = faulty(BusFaults(latency_s=1))
        subscription = await network.client("b").subscribe("data.x")
        for began_s in (1000.0, 0.0):
            # a machine that has started again
            loop.host("a", clock=HostClock(began_s=began_s, rate=0.5)).start(send(network.client("a"), 1))
            await anext(subscription)
        assert loop.time() == pytest.approx(2)

    on_loop(main(), loop)


def test_a_frozen_host_finds_the_newest_messages_when_it_thaws() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        network = faulty()
        subscription, got = await network.client("b").subscribe("data.x", limit=2), list[int]()

        async def take_two() -> None:
            got.extend([int((await anext(subscription)).body) for _ in range(2)])

        host = loop.host("b")
        host.start(take_two())
        await asyncio.sleep(1)
        host.freeze()
        await send(network.client("a"), 5)
        await asyncio.sleep(1)
        assert (got, subscription.dropped) == ([], 3)
        host.thaw()
        await asyncio.sleep(1)
        assert got == [3, 4]

    on_loop(main(), loop)


def test_presence_notices_travel_like_messages() -> None:
    async def main() -> None:
        network = faulty(BusFaults(latency_s=1))
        notices = await network.client("watcher").presence()
        network.cut("n1", "watcher")
        network.client("n1")
        network.client("n2")
        notice = await anext(notices)
        assert (notice.peer, notice.opened, now_s()) == ("n2", True, 1.0)

    run_virtual(main())


WEATHER = BusFaults(latency_s=0.01, jitter_s=0.05, lost=0.2, duplicated=0.2, reordered=0.1, late_s=0.5)


async def history(seed: int) -> list[str]:
    """Three clients that repeat requests until they are answered, two servers that count what they process, and a cut:
    everything that happens, with its time."""
    network, trace = faulty(WEATHER, seed), list[str]()

    def note(text: str) -> None:
        trace.append(f"{now_s():.6f} {text}")

    async def serve(name: str) -> None:
        bus = network.client(name)
        async for message in await bus.subscribe("control.add", group="servers"):
            note(f"{name} processes {message.body.decode()}")
            assert message.reply is not None
            await bus.publish(message.reply, name.encode())

    async def ask(name: str) -> None:
        bus = network.client(name)
        for n in range(10):
            while True:
                try:
                    answer = await bus.request("control.add", f"{name}/{n}".encode(), 0.3)
                except (RequestTimeout, NoResponders) as error:
                    note(f"{name}/{n} {error.code}")
                    await asyncio.sleep(0.1)
                else:
                    note(f"{name}/{n} answered by {answer.decode()}")
                    break

    servers = [asyncio.create_task(serve(f"s{n}")) for n in range(2)]
    clients = [asyncio.create_task(ask(f"c{n}")) for n in range(3)]
    await asyncio.sleep(0.5)
    network.cut("s1", "c0")
    await asyncio.sleep(2)
    network.join_all()
    await asyncio.gather(*clients)
    for server in servers:
        server.cancel()
    note(f"{sorted(network.counts.items())}")
    return trace


def test_a_seed_replays_exactly_and_every_request_is_answered_in_spite_of_loss() -> None:
    traces = [run_virtual(history(seed), seed=seed) for seed in range(20)]

    assert traces == [run_virtual(history(seed), seed=seed) for seed in range(20)]
    assert len({"\n".join(trace) for trace in traces}) == 20
    for trace in traces:
        text = "\n".join(trace)
        assert text.count("answered by") == 30
        assert text.count("request_timeout") > 0
        assert text.count("processes") > 30


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lost", 1.5), ("duplicated", -0.1), ("reordered", 2), ("no_responders", float("nan")),
        ("latency_s", -1), ("jitter_s", -1), ("late_s", -1), ("slow_s", float("nan")), ("backlog", 0),
    ],
)  # fmt: skip
def test_faults_out_of_range_are_refused_by_field(field: str, value: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        BusFaults(**{field: value})  # type: ignore[arg-type]  # one field at a time
    assert caught.value.field == field
