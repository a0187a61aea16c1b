"""What every adapter of the bus does. The tests use the port only, and wait for messages as long as a wire may need."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, TypeVar

import pytest

from mainstay.bus import MAX_BODY_BYTES, Bus, BusMessage, MessageClass, PresenceNotice, Subscription
from mainstay.errors import BusClosed, InvalidInput, MainstayError, NoResponders, PayloadTooLarge, RequestTimeout
from tests.bus.adapters import Connect

T = TypeVar("T")
PATIENCE_S = 10


async def read(subscription: Subscription[T], count: int) -> list[T]:
    async with asyncio.timeout(PATIENCE_S):
        return [await anext(subscription) for _ in range(count)]


async def bodies(subscription: Subscription[BusMessage], count: int) -> list[bytes]:
    return [message.body for message in await read(subscription, count)]


def answer_with(bus: Bus, subscription: Subscription[BusMessage], prefix: bytes) -> asyncio.Task[None]:
    async def answer() -> None:
        async for message in subscription:
            assert message.reply is not None
            await bus.publish(message.reply, prefix + message.body)

    return asyncio.create_task(answer())


# publish and subscribe ---------------------------------------------------------------------------


async def test_a_message_reaches_every_matching_subscription(connect: Connect) -> None:
    sender, first, second = await connect("sender"), await connect("first"), await connect("second")
    exact = await first.subscribe("control.beat.n1")
    one, rest = await first.subscribe("control.*.n1"), await second.subscribe("control.>")

    await sender.publish("control.beat.n1", b"alive")

    expected = BusMessage(subject="control.beat.n1", body=b"alive", reply=None)
    for subscription in (exact, one, rest):
        assert await read(subscription, 1) == [expected]


async def test_a_subscription_gets_no_messages_of_other_subjects(connect: Connect) -> None:
    sender, receiver = await connect("sender"), await connect("receiver")
    subscription = await receiver.subscribe("data.window.*")

    for subject in ("data.window", "data.window.j1.extra", "data.windows.j1", "telemetry.window.j1"):
        await sender.publish(subject, b"other")
    await sender.publish("data.window.j1", b"wanted")

    assert await bodies(subscription, 1) == [b"wanted"]


async def test_a_client_gets_its_own_messages(connect: Connect) -> None:
    bus = await connect("a")
    subscription = await bus.subscribe("data.x")

    await bus.publish("data.x", b"1")

    assert await bodies(subscription, 1) == [b"1"]


async def test_a_message_without_a_subscription_is_lost_without_an_error(connect: Connect) -> None:
    bus = await connect("a")
    await bus.publish("data.x", b"early")
    subscription = await bus.subscribe("data.x")

    await bus.publish("data.x", b"late")

    assert await bodies(subscription, 1) == [b"late"]


async def test_a_message_carries_its_reply_subject_and_its_class(connect: Connect) -> None:
    bus = await connect("a")
    asked, answers = await bus.subscribe("dispatch.wake.n1"), await bus.subscribe("control.answers.a")

    await bus.publish("dispatch.wake.n1", b"", reply="control.answers.a")
    (message,) = await read(asked, 1)
    assert message.reply is not None
    await bus.publish(message.reply, b"done")

    assert message.message_class is MessageClass.DISPATCH
    assert await bodies(answers, 1) == [b"done"]


async def test_bodies_are_carried_unchanged_up_to_the_limit(connect: Connect) -> None:
    sender, receiver = await connect("sender"), await connect("receiver")
    subscription = await receiver.subscribe("data.x")

    for body in (b"", bytes(range(256)), b"\xff" * MAX_BODY_BYTES):
        await sender.publish("data.x", body)
        assert await bodies(subscription, 1) == [body]


async def test_a_closed_subscription_ends_and_gets_nothing_more(connect: Connect) -> None:
    bus = await connect("a")
    closed, kept = await bus.subscribe("data.x"), await bus.subscribe("data.x")
    await bus.publish("data.x", b"1")
    await closed.close()
    await closed.close()

    await bus.publish("data.x", b"2")

    assert await bodies(kept, 2) == [b"1", b"2"]
    assert [message async for message in closed] == []


async def test_closing_a_subscription_ends_a_waiting_iteration(connect: Connect) -> None:
    bus = await connect("a")
    subscription = await bus.subscribe("data.x")

    async def collect() -> list[BusMessage]:
        return [message async for message in subscription]

    waiting = asyncio.create_task(collect())
    await asyncio.sleep(0)
    await subscription.close()

    assert await asyncio.wait_for(waiting, PATIENCE_S) == []


async def test_a_wait_that_is_cancelled_loses_no_message(connect: Connect) -> None:
    bus = await connect("a")
    subscription = await bus.subscribe("data.x")
    waiting = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    waiting.cancel()

    await bus.publish("data.x", b"1")

    assert await bodies(subscription, 1) == [b"1"]


# groups ------------------------------------------------------------------------------------------


async def test_one_member_of_a_group_gets_each_message(connect: Connect) -> None:
    sender = await connect("sender")
    members = [await (await connect(f"m{n}")).subscribe("dispatch.job", group="managers") for n in range(3)]
    alone = await sender.subscribe("dispatch.job")
    got: Counter[bytes] = Counter()
    came = asyncio.Semaphore(0)

    async def collect(member: Subscription[BusMessage]) -> None:
        async for message in member:
            got[message.body] += 1
            came.release()

    tasks = [asyncio.create_task(collect(member)) for member in members]
    sent = [str(n).encode() for n in range(60)]
    for body in sent:
        await sender.publish("dispatch.job", body)
    async with asyncio.timeout(PATIENCE_S):
        for _ in sent:
            await came.acquire()
    assert sorted(await bodies(alone, 60)) == sorted(sent)
    for member in members:
        await member.close()
    await asyncio.gather(*tasks)

    assert got == Counter(sent)


async def test_each_group_gets_each_message(connect: Connect) -> None:
    bus = await connect("a")
    first, second = await bus.subscribe("data.x", group="one"), await bus.subscribe("data.*", group="two")

    await bus.publish("data.x", b"1")

    assert (await bodies(first, 1), await bodies(second, 1)) == ([b"1"], [b"1"])


async def test_a_closed_member_leaves_its_group(connect: Connect) -> None:
    bus = await connect("a")
    gone, stays = await bus.subscribe("data.x", group="g"), await bus.subscribe("data.x", group="g")
    await gone.close()

    for n in range(4):
        await bus.publish("data.x", str(n).encode())

    assert sorted(await bodies(stays, 4)) == [b"0", b"1", b"2", b"3"]


# queues ------------------------------------------------------------------------------------------


async def test_a_full_queue_drops_the_oldest_and_counts_them(connect: Connect) -> None:
    sender, receiver = await connect("sender"), await connect("receiver")
    slow = await receiver.subscribe("telemetry.x", limit=3)

    for n in range(10):
        await sender.publish("telemetry.x", str(n).encode())
    async with asyncio.timeout(PATIENCE_S):
        while slow.dropped < 7:
            await asyncio.sleep(0)

    assert (slow.waiting, await bodies(slow, 3), slow.dropped) == (3, [b"7", b"8", b"9"], 7)


async def test_a_full_queue_does_not_concern_other_subscriptions(connect: Connect) -> None:
    sender, receiver = await connect("sender"), await connect("receiver")
    slow, other = await receiver.subscribe("data.x", limit=1), await receiver.subscribe("data.x", limit=50)

    for n in range(50):
        await sender.publish("data.x", str(n).encode())

    assert len(await bodies(other, 50)) == 50
    assert other.dropped == 0
    assert slow.waiting <= 1


# requests ----------------------------------------------------------------------------------------


async def test_a_request_returns_the_answer(connect: Connect) -> None:
    asking, answering = await connect("asking"), await connect("answering")
    task = answer_with(answering, subscription := await answering.subscribe("control.echo"), b"echo ")

    found = await asyncio.gather(*(asking.request("control.echo", str(n).encode(), PATIENCE_S) for n in range(20)))
    await subscription.close()
    await task

    assert found == [f"echo {n}".encode() for n in range(20)]


async def test_a_request_to_a_group_is_answered_by_one_member(connect: Connect) -> None:
    asking, one, two = await connect("asking"), await connect("one"), await connect("two")
    groups = [await bus.subscribe("control.echo", group="managers") for bus in (one, two)]
    tasks = [answer_with(bus, group, b"") for bus, group in zip((one, two), groups, strict=True)]

    assert await asking.request("control.echo", b"x", PATIENCE_S) == b"x"
    for group in groups:
        await group.close()
    await asyncio.gather(*tasks)


async def test_a_request_without_a_subscription_fails_at_once(connect: Connect) -> None:
    bus = await connect("a")
    gone = await bus.subscribe("control.echo")
    await bus.publish("control.echo", b"")
    await gone.close()

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(NoResponders, match=r"nothing is subscribed to control\.echo"):
            await bus.request("control.echo", b"", 3600)


async def test_a_request_that_is_not_answered_times_out(connect: Connect) -> None:
    bus = await connect("a")
    subscription = await bus.subscribe("control.echo")

    with pytest.raises(RequestTimeout, match=r"control\.echo was not answered within 0\.05 s") as caught:
        await bus.request("control.echo", b"", 0.05)

    assert isinstance(caught.value, TimeoutError)
    assert await bodies(subscription, 1) == [b""]


async def test_a_second_answer_is_ignored(connect: Connect) -> None:
    asking, answering = await connect("asking"), await connect("answering")
    subscription = await answering.subscribe("control.echo")

    async def answer_twice() -> None:
        for message in await read(subscription, 1):
            assert message.reply is not None
            await answering.publish(message.reply, b"first")
            await answering.publish(message.reply, b"second")

    task = asyncio.create_task(answer_twice())
    assert await asking.request("control.echo", b"", PATIENCE_S) == b"first"
    await task
    task = answer_with(answering, subscription, b"")
    assert await asking.request("control.echo", b"next", PATIENCE_S) == b"next"
    await subscription.close()
    await task


async def test_an_answer_after_the_timeout_is_ignored(connect: Connect) -> None:
    asking, answering = await connect("asking"), await connect("answering")
    subscription = await answering.subscribe("control.echo")
    with pytest.raises(RequestTimeout):
        await asking.request("control.echo", b"", 0.05)
    (message,) = await read(subscription, 1)
    assert message.reply is not None

    await answering.publish(message.reply, b"late")

    task = answer_with(answering, subscription, b"")
    assert await asking.request("control.echo", b"next", PATIENCE_S) == b"next"
    await subscription.close()
    await task


# presence ----------------------------------------------------------------------------------------


async def test_presence_reports_connections_that_open_and_close(connect: Connect) -> None:
    watcher = await connect("watcher")
    notices = await watcher.presence()

    node = await connect("node-1")
    await node.close()
    opened, closed = await read(notices, 2)

    assert (opened.peer, opened.opened, closed.peer, closed.opened) == ("node-1", True, "node-1", False)
    assert opened.connection == closed.connection != ""


async def test_a_second_connection_of_a_peer_is_another_one(connect: Connect) -> None:
    watcher = await connect("watcher")
    notices = await watcher.presence()

    await connect("node-1")
    await connect("node-1")
    first, second = await read(notices, 2)

    assert (first.peer, second.peer) == ("node-1", "node-1")
    assert first.connection != second.connection


async def test_presence_is_a_bounded_queue(connect: Connect) -> None:
    watcher = await connect("watcher")
    notices: Subscription[PresenceNotice] = await watcher.presence(limit=1)

    await connect("n1")
    await connect("n2")
    async with asyncio.timeout(PATIENCE_S):
        while not notices.dropped:
            await asyncio.sleep(0)

    assert [notice.peer for notice in await read(notices, 1)] == ["n2"]


# close -------------------------------------------------------------------------------------------


async def test_close_ends_subscriptions_and_waiting_requests(connect: Connect) -> None:
    bus, other = await connect("a"), await connect("b")
    subscription, notices = await bus.subscribe("data.x"), await bus.presence()
    silent = await other.subscribe("control.echo")
    asked = asyncio.create_task(bus.request("control.echo", b"", 3600))
    await read(silent, 1)

    await bus.close()
    await bus.close()

    with pytest.raises(BusClosed, match="the bus client a was closed"):
        await asyncio.wait_for(asked, PATIENCE_S)
    assert [message async for message in subscription] == []
    assert [notice async for notice in notices] == []


async def test_a_closed_client_refuses_every_call(connect: Connect) -> None:
    bus = await connect("a")
    await bus.close()

    for call in (
        bus.publish("data.x", b""),
        bus.request("data.x", b"", 1),
        bus.subscribe("data.x"),
        bus.presence(),
    ):
        with pytest.raises(BusClosed):
            await call


async def test_a_closed_client_receives_nothing_and_answers_nothing(connect: Connect) -> None:
    bus, gone = await connect("a"), await connect("gone")
    await gone.subscribe("control.echo")
    await gone.close()

    with pytest.raises(NoResponders):
        await bus.request("control.echo", b"", 1)


async def test_a_client_has_a_name(connect: Connect) -> None:
    assert (await connect("node-1")).name == "node-1"


# refusals ----------------------------------------------------------------------------------------

BAD_SUBJECTS: list[Any] = [
    "", "control", "beat.n1", "control.", ".control", "control..x", "control.a b", "control.x\r\n", "control.é",
    "control.*", "control.>", "control.a*", "$SYS.x", "control." + "x" * 300, None, b"control.x",
]  # fmt: skip


@pytest.mark.parametrize("subject", BAD_SUBJECTS, ids=repr)
async def test_a_bad_subject_is_refused_by_field(connect: Connect, subject: Any) -> None:
    bus = await connect("a")

    for call in (bus.publish(subject, b""), bus.request(subject, b"", 1)):
        with pytest.raises(InvalidInput) as caught:
            await call
        assert caught.value.field == "subject"
    with pytest.raises(InvalidInput) as caught:
        await bus.publish("data.x", b"", reply=subject if subject is not None else 1)
    assert caught.value.field == "reply"


@pytest.mark.parametrize("pattern", ["control", ">", "*.x", "control.>.x", "control.a>", "control.**", "_INBOX.>"])
async def test_a_bad_pattern_is_refused_by_field(connect: Connect, pattern: str) -> None:
    bus = await connect("a")

    with pytest.raises(InvalidInput) as caught:
        await bus.subscribe(pattern)
    assert caught.value.field == "subject"


async def test_other_bad_values_are_refused_by_field(connect: Connect) -> None:
    bus = await connect("a")
    too_large = b"x" * (MAX_BODY_BYTES + 1)
    text: Any = "text"
    calls = [
        ("body", bus.publish("data.x", too_large)),
        ("body", bus.request("data.x", too_large, 1)),
        ("body", bus.publish("data.x", text)),
        ("timeout_s", bus.request("data.x", b"", 0)),
        ("timeout_s", bus.request("data.x", b"", float("nan"))),
        ("timeout_s", bus.request("data.x", b"", float("inf"))),
        ("group", bus.subscribe("data.x", group="a b")),
        ("limit", bus.subscribe("data.x", limit=0)),
        ("limit", bus.presence(limit=-1)),
    ]

    for field, call in calls:
        with pytest.raises(InvalidInput) as caught:
            await call
        assert caught.value.field == field


async def test_a_body_that_is_too_large_says_by_how_much(connect: Connect) -> None:
    bus = await connect("a")

    with pytest.raises(PayloadTooLarge, match="has 1048577 bytes; at most 1048576 are accepted"):
        await bus.publish("data.x", b"x" * (MAX_BODY_BYTES + 1))


def test_the_errors_of_the_bus_are_errors_of_mainstay() -> None:
    assert all(issubclass(kind, MainstayError) for kind in (NoResponders, RequestTimeout, BusClosed))
