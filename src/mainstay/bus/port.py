"""The port of the bus: what cluster code may ask of it, and what it may not expect.

The bus carries messages between clients and promises nothing: a message may be lost, arrive twice, arrive late, or
arrive after one that was sent later. What must not be lost is in a job store. The operations are those of core NATS;
`docs/decisions/bus.md` has the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import msgspec

from ..errors import InvalidInput, PayloadTooLarge
from .subjects import MessageClass
from .subscription import Subscription

#: the largest body; servers of NATS refuse more by default
MAX_BODY_BYTES = 1024 * 1024
#: how many messages a subscription holds if `limit` is not given. Control messages are small, and are not shed: their
#: queue is only bounded so that a receiver that has stopped reading cannot use up the memory
QUEUE_LIMITS: Mapping[MessageClass, int] = MappingProxyType(
    {
        MessageClass.CONTROL: 10_000,
        MessageClass.DISPATCH: 500,
        MessageClass.DATA: 500,
        MessageClass.TELEMETRY: 500,
    }
)


class BusMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message as its receiver sees it."""

    subject: str
    body: bytes
    reply: str | None = None
    """the subject to publish an answer to; None if no answer is expected"""

    @property
    def message_class(self) -> MessageClass:
        return MessageClass.of(self.subject)


class PresenceNotice(msgspec.Struct, frozen=True, kw_only=True):
    """The connection of a peer was opened or closed. Only a hint: notices can be lost, and a closed connection does not
    prove that the peer has ended."""

    peer: str
    """the name of the client"""
    connection: str
    """which connection of the peer: after a reconnect it is another one"""
    opened: bool
    """False: it was closed"""


class Bus(Protocol):
    """One client's connection to the bus.

    A lost connection is restored by the adapter, with all subscriptions. Until then messages are lost or late, and
    requests time out. After `close`, every method raises `BusClosed`.
    """

    @property
    def name(self) -> str:
        """The name of this client in presence notices."""
        ...

    @property
    def dropped(self) -> Mapping[MessageClass, int]:
        """Messages that the subscriptions of this client have dropped because their queues were full, by class."""
        ...

    async def publish(self, subject: str, body: bytes, *, reply: str | None = None) -> None:
        """Send a message to every subscription whose pattern matches, and to one member of each group.

        Returns before the message has arrived. A message without a subscription is lost. `reply` is where answers go: a
        subject that the sender has subscribed to, or the `reply` of a request that it hands on. Subjects that break the
        rules and bodies above `MAX_BODY_BYTES` are refused."""
        ...

    async def request(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        """Send a message and return the first answer to it. A receiver answers by publishing to `message.reply`.

        Raises `NoResponders` at once if nothing is subscribed, and `RequestTimeout` if no answer arrived in time: the
        request may have been processed, also more than once."""
        ...

    async def subscribe(
        self, subject: str, *, group: str | None = None, limit: int | None = None
    ) -> Subscription[BusMessage]:
        """Receive the messages of a subject or pattern that are published from now on, own ones included. Returns when
        the server knows the subscription.

        Of the subscriptions with the same `group` one gets each message. `limit` bounds the queue: see `Subscription`;
        by default it is that of the class in `QUEUE_LIMITS`."""
        ...

    async def presence(self, *, limit: int | None = None) -> Subscription[PresenceNotice]:
        """Receive a notice whenever the connection of another client is opened or closed, from now on. The connections
        that exist already are not reported: beats show them. The default limit is that of control messages."""
        ...

    async def close(self) -> None:
        """Close the connection. Subscriptions end and the server forgets them, and waiting requests raise `BusClosed`.
        A second call does nothing."""
        ...


def check_body(body: bytes) -> bytes:
    """Return the body of a message; refuse one that a server would refuse."""
    if not isinstance(body, bytes):
        raise InvalidInput("body", f"must be bytes, not {type(body).__name__}")
    if len(body) > MAX_BODY_BYTES:
        raise PayloadTooLarge("body", f"has {len(body)} bytes; at most {MAX_BODY_BYTES} are accepted: send it in parts")
    return body


def check_limit(limit: int | None, kind: MessageClass) -> int:
    """Return the bound of a queue, by default that of its class; refuse one that could not hold a message."""
    if limit is None:
        return QUEUE_LIMITS[kind]
    if not isinstance(limit, int) or limit < 1:
        raise InvalidInput("limit", f"{limit!r} is not a whole number of at least 1")
    return limit


def check_timeout(timeout_s: float) -> float:
    """Return the longest wait for an answer; refuse one that is over before it begins, or that never ends."""
    if not 0 < timeout_s < math.inf:
        raise InvalidInput("timeout_s", f"{timeout_s!r} is not a time above 0 s")
    return timeout_s


__all__ = [
    "MAX_BODY_BYTES",
    "QUEUE_LIMITS",
    "Bus",
    "BusMessage",
    "PresenceNotice",
    "check_body",
    "check_limit",
    "check_timeout",
]
