"""The bus within one process: many clients, one event loop, no threads, nothing left to chance.

`MemoryBusNetwork` stands for the server. It puts each message into the queues of its receivers at once; a subclass can
carry messages in another way (`mainstay.testing.FaultyBusNetwork`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ..errors import BusClosed, NoResponders, RequestTimeout
from .port import BusMessage, PresenceNotice, check_body, check_limit, check_timeout
from .subjects import INBOX, MessageClass, check_name, check_pattern, check_reply, check_subject, is_inbox, matches
from .subscription import Subscription

T = TypeVar("T")

#: subjects whose subscriptions are remembered; more than a cluster uses at a time
_ROUTES = 4096


class _Interest(NamedTuple):
    """One subscription as the network sees it."""

    client: MemoryBus
    pattern: str
    group: str | None
    subscription: Subscription[BusMessage]


class MemoryBusNetwork:
    """What the clients of one process are connected to.

    >>> async def main():
    ...     network = MemoryBusNetwork()
    ...     try:
    ...         await network.client("cli").request("control.status", b"", 1)
    ...     except NoResponders as error:
    ...         return error.subject
    >>> asyncio.run(main())
    'control.status'
    """

    def __init__(self) -> None:
        self._clients: list[MemoryBus] = []
        self._interests: list[_Interest] = []
        self._watchers: list[tuple[MemoryBus, Subscription[PresenceNotice]]] = []
        self._inboxes: dict[str, MemoryBus] = {}
        self._turns: dict[str, int] = {}
        self._routes: dict[str, list[_Interest]] = {}
        self._connections = 0

    def client(self, name: str, *, host: str | None = None) -> MemoryBus:
        """Connect a client. `host` is the machine it runs on, for networks that carry messages between machines; the
        default is its name. Several clients may have one name, as after a restart that the network has not noticed."""
        client = MemoryBus(
            self, check_name(name, field="name"), check_name(name if host is None else host, field="host")
        )
        self._clients.append(client)
        self._connect(client)
        return client

    def disconnect(self, name: str) -> None:
        """Close the connections of the clients with this name, as a server does that does not hear from them. They
        notice nothing; what is sent to them and by them is lost until `reconnect`."""
        for client in self._named(name):
            if client.connected:
                self._disconnect(client)

    def reconnect(self, name: str) -> None:
        """Connect the clients with this name again that `disconnect` has cut off, with their subscriptions."""
        for client in self._named(name):
            if not client.connected:
                self._connect(client)

    # what a network with faults does in another way ---------------------------------------------

    def carry(self, source: str, destination: str, deliver: Callable[[], None]) -> None:
        """Bring one message from host to host: call `deliver` when it arrives."""
        del source, destination
        deliver()

    def is_known(self, source: str, destination: str) -> bool:
        """Whether a request from one host finds the subscriptions of another."""
        del source, destination
        return True

    # for its clients ----------------------------------------------------------------------------

    def send(self, sender: MemoryBus, message: BusMessage) -> None:
        """Carry a message to its receivers."""
        if not sender.connected:
            return
        if is_inbox(message.subject):
            asking = self._inboxes.get(message.subject)
            if asking is not None:
                self._carry(sender, asking, lambda: asking.answer(message.subject, message.body))
            return
        self._send_to(sender, message, self._matching(message.subject))

    def ask(self, sender: MemoryBus, message: BusMessage) -> bool:
        """Carry a request; False if no subscription can receive it."""
        if not sender.connected:
            return True  # the sender cannot know
        known = [one for one in self._matching(message.subject) if self.is_known(sender.host, one.client.host)]
        self._send_to(sender, message, known)
        return bool(known)

    def expect(self, inbox: str, client: MemoryBus) -> None:
        self._inboxes[inbox] = client

    def forget(self, inbox: str) -> None:
        self._inboxes.pop(inbox, None)

    def add(self, client: MemoryBus, pattern: str, group: str | None, limit: int) -> Subscription[BusMessage]:
        async def unsubscribe() -> None:
            self._interests.remove(interest)
            self._routes.clear()

        def on_drop() -> None:
            client.dropped[kind] += 1

        kind = MessageClass.of(pattern)
        interest = _Interest(client, pattern, group, Subscription(limit, unsubscribe, on_drop))
        self._interests.append(interest)
        self._routes.clear()
        return interest.subscription

    def watch(self, client: MemoryBus, limit: int) -> Subscription[PresenceNotice]:
        async def unsubscribe() -> None:
            self._watchers.remove((client, subscription))

        subscription: Subscription[PresenceNotice] = Subscription(limit, unsubscribe)
        self._watchers.append((client, subscription))
        return subscription

    async def remove(self, client: MemoryBus) -> None:
        """Close a client: end its subscriptions and report it."""
        for interest in [one for one in self._interests if one.client is client]:
            await interest.subscription.close()
        for watching, subscription in list(self._watchers):
            if watching is client:
                await subscription.close()
        self._clients.remove(client)
        if client.connected:
            self._disconnect(client)

    # within -------------------------------------------------------------------------------------

    def _named(self, name: str) -> list[MemoryBus]:
        return [client for client in self._clients if client.name == name]

    def _connect(self, client: MemoryBus) -> None:
        self._connections += 1
        client.connection = str(self._connections)
        client.connected = True
        self._routes.clear()
        self._report(client, opened=True)

    def _disconnect(self, client: MemoryBus) -> None:
        client.connected = False
        self._routes.clear()
        self._report(client, opened=False)

    def _report(self, client: MemoryBus, *, opened: bool) -> None:
        notice = PresenceNotice(peer=client.name, connection=client.connection, opened=opened)
        for watching, subscription in self._watchers:
            if watching is not client and watching.connected:
                self._deliver(client, watching, subscription, notice)

    def _matching(self, subject: str) -> list[_Interest]:
        found = self._routes.get(subject)
        if found is None:
            found = [one for one in self._interests if one.client.connected and matches(one.pattern, subject)]
            if len(self._routes) >= _ROUTES:
                self._routes.clear()
            self._routes[subject] = found
        return found

    def _send_to(self, sender: MemoryBus, message: BusMessage, interests: list[_Interest]) -> None:
        groups: dict[str, list[_Interest]] = {}
        for one in interests:
            if one.group is None:
                self._deliver(sender, one.client, one.subscription, message)
            else:
                groups.setdefault(one.group, []).append(one)
        for group, members in groups.items():
            turn = self._turns.get(group, 0)
            self._turns[group] = turn + 1
            chosen = members[turn % len(members)]
            self._deliver(sender, chosen.client, chosen.subscription, message)

    def _deliver(self, sender: MemoryBus, receiver: MemoryBus, subscription: Subscription[T], item: T) -> None:
        self._carry(sender, receiver, lambda: subscription.put(item))

    def _carry(self, sender: MemoryBus, receiver: MemoryBus, take: Callable[[], None]) -> None:
        connection = receiver.connection

        def deliver() -> None:
            # what was on its way to a connection that has ended is lost with it
            if receiver.connected and receiver.connection == connection:
                take()

        self.carry(sender.host, receiver.host, deliver)


class MemoryBus:
    """One client of a `MemoryBusNetwork`. It is a `Bus`."""

    def __init__(self, network: MemoryBusNetwork, name: str, host: str) -> None:
        self._network = network
        self._name = name
        self._closed = False
        self._asked = 0
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self.dropped: Counter[MessageClass] = Counter()
        #: the machine it runs on
        self.host = host
        #: set by the network
        self.connected = False
        self.connection = ""

    def __repr__(self) -> str:
        state = "closed" if self._closed else "connected" if self.connected else "disconnected"
        return f"<MemoryBus {self._name} {state}>"

    @property
    def name(self) -> str:
        return self._name

    async def publish(self, subject: str, body: bytes, *, reply: str | None = None) -> None:
        check_reply(subject, field="subject")  # a subject, or the inbox of a request that this answers
        if reply is not None:
            check_reply(reply)
        check_body(body)
        self._check_open()
        self._network.send(self, BusMessage(subject=subject, body=body, reply=reply))

    async def request(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        check_subject(subject)
        check_body(body)
        check_timeout(timeout_s)
        self._check_open()
        self._asked += 1
        inbox = f"{INBOX}.{self.connection}.{self._asked}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[inbox] = answer
        self._network.expect(inbox, self)
        try:
            if not self._network.ask(self, BusMessage(subject=subject, body=body, reply=inbox)):
                raise NoResponders(subject)
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise RequestTimeout(subject, timeout_s) from None
        finally:
            self._network.forget(inbox)
            del self._answers[inbox]

    async def subscribe(
        self, subject: str, *, group: str | None = None, limit: int | None = None
    ) -> Subscription[BusMessage]:
        check_pattern(subject)
        if group is not None:
            check_name(group, field="group")
        most = check_limit(limit, MessageClass.of(subject))
        self._check_open()
        return self._network.add(self, subject, group, most)

    async def presence(self, *, limit: int | None = None) -> Subscription[PresenceNotice]:
        most = check_limit(limit, MessageClass.CONTROL)
        self._check_open()
        return self._network.watch(self, most)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(BusClosed(self._name))
        await self._network.remove(self)

    def answer(self, inbox: str, body: bytes) -> None:
        """Take an answer to a request. For the network; late and repeated answers are ignored."""
        answer = self._answers.get(inbox)
        if answer is not None and not answer.done():
            answer.set_result(body)

    def _check_open(self) -> None:
        if self._closed:
            raise BusClosed(self._name)


__all__ = ["MemoryBus", "MemoryBusNetwork"]
