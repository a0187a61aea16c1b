"""The bus on a NATS server (core NATS, no JetStream), with nats-py.

Messages go into our own bounded queues from the callback of nats-py: its own queues drop the newest message when they
are full, ours the oldest. Presence comes from the events of the server's system account.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from ..errors import BusClosed, BusError, MissingExtra, NoResponders, RequestTimeout
from .port import BusMessage, PresenceNotice, check_body, check_limit, check_timeout
from .subjects import INBOX, MessageClass, check_name, check_pattern, check_reply, check_subject
from .subscription import Subscription

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

log = logging.getLogger("mainstay.bus")

#: between two tries to connect
_RECONNECT_S = 0.5
_CONNECT_TIMEOUT_S = 2
#: how long one of our tries to connect lasts
_TRY_S = 3.0
#: how often the client asks whether the server lives; two lost answers end the connection
_PING_S = 2
#: bytes that wait while there is no connection; more are refused
_PENDING_BYTES = 8 * 1024 * 1024
_NO_RESPONDERS = "503"
_STATUS = "Status"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 15.0
#: the account of our clients; others, as the system account itself, are not reported
ACCOUNT = "CLUSTER"
#: the user of a client with a certificate is the subject of that
_CERTIFICATE = "CN="
_CONNECTIONS = f"$SYS.ACCOUNT.{ACCOUNT}.CONNECT", f"$SYS.ACCOUNT.{ACCOUNT}.DISCONNECT"


class _SystemClient(msgspec.Struct):
    id: int = 0
    name: str = ""
    user: str = ""

    @property
    def peer(self) -> str:
        """Who it is: as its certificate says, ROLE:NAME, or as it says itself."""
        if not self.user.startswith(_CERTIFICATE):
            return self.name
        return self.user.removeprefix(_CERTIFICATE).partition(",")[0].replace(":", ".", 1)


class _SystemEvent(msgspec.Struct):
    client: _SystemClient


async def connect_nats(
    servers: str | Sequence[str],
    *,
    name: str,
    inbox: str = INBOX,
    tls: ssl.SSLContext | None = None,
    watch: str | None = None,
    timeout_s: float | None = None,
) -> NatsBus:
    """Connect a client.

    `servers` are URLs with the credentials in them. `inbox` begins the subjects of answers to this client: with
    permissions for it, no other client reads them. `watch` is a URL with the credentials of the system account, without
    which `presence` reports nothing. Without `timeout_s` it tries until a server answers.
    """
    check_name(name, field="name")
    try:
        from nats.aio.client import Client  # noqa: PLC0415 - an extra
        from nats.errors import Error, NoServersError  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtra("bus", "nats-py is not installed; run: pip install 'mainstay[cluster]'") from None
    urls = [servers] if isinstance(servers, str) else list(servers)
    loop = asyncio.get_running_loop()
    ends_s = None if timeout_s is None else loop.time() + timeout_s
    wait_s = _FIRST_WAIT_S
    bus = NatsBus(name, inbox)
    while True:
        client = Client()
        try:
            # nats-py would try forever by itself, and never say why
            async with asyncio.timeout(_TRY_S if timeout_s is None else min(_TRY_S, timeout_s)):
                await client.connect(servers=urls, **bus.options(name, inbox, tls))
        except (OSError, NoServersError, Error, TimeoutError) as error:
            with contextlib.suppress(Exception):
                await client.close()
            if ends_s is not None and loop.time() + wait_s > ends_s:
                shown = ", ".join(urlsplit(url).netloc.rpartition("@")[2] for url in urls)
                reason = bus.last_error or _shown(error)
                raise BusError(f"the bus at {shown} cannot be reached, or refuses this client: {reason}") from None
            log.warning("bus away: %s; trying again in %.1f s", _shown(error), wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(_LONGEST_WAIT_S, wait_s * 2)
        else:
            break
    bus.attach(client)
    if watch is not None:
        watcher = Client()
        await watcher.connect(servers=[watch], **bus.options(f"{name}.presence", INBOX, tls))
        await bus.attach_watcher(watcher)
    return bus


class NatsBus:
    """One client of a NATS server. It is a `Bus`; `connect_nats` makes it."""

    def __init__(self, name: str, inbox: str) -> None:
        self._name = name
        self._inbox = inbox
        self._client: Client
        self._watcher: Client | None = None
        self._closed = False
        self._numbers = itertools.count(1)
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._answer_subject = ""
        self._subscriptions: list[Subscription[Any]] = []
        self._watching: list[Subscription[PresenceNotice]] = []
        self._starting = asyncio.Lock()
        #: what the server or the connection said last; empty: nothing went wrong
        self.last_error = ""
        #: messages that were not sent, because there was no connection and too much waited already
        self.unsent = 0

    def __repr__(self) -> str:
        return f"<NatsBus {self._name} {'closed' if self._closed else 'open'}>"

    @property
    def name(self) -> str:
        return self._name

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return not self._closed and self._client.is_connected

    # for connect_nats ---------------------------------------------------------------------------

    def options(self, name: str, inbox: str, tls: ssl.SSLContext | None) -> dict[str, Any]:
        """How nats-py connects."""
        more: dict[str, Any] = {} if tls is None else {"tls": tls}
        return {
            "name": name,
            "inbox_prefix": inbox.encode(),
            "allow_reconnect": True,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": _RECONNECT_S,
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "ping_interval": _PING_S,
            "max_outstanding_pings": 2,
            "pending_size": _PENDING_BYTES,
            "error_cb": self._failed,
            "disconnected_cb": self._disconnected,
            "reconnected_cb": self._reconnected,
            **more,
        }

    def attach(self, client: Client) -> None:
        self._client = client

    async def attach_watcher(self, watcher: Client) -> None:
        self._watcher = watcher
        for subject in _CONNECTIONS:
            await watcher.subscribe(subject, cb=self._noticed)
        await _known(watcher)

    # the port -----------------------------------------------------------------------------------

    async def publish(self, subject: str, body: bytes, *, reply: str | None = None) -> None:
        check_reply(subject, field="subject")
        if reply is not None:
            check_reply(reply)
        check_body(body)
        self._check_open()
        await self._send(subject, body, reply or "")

    async def request(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        check_subject(subject)
        check_body(body)
        check_timeout(timeout_s)
        self._check_open()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        number = str(next(self._numbers))
        self._answers[number] = answer
        try:
            async with asyncio.timeout(timeout_s):
                await self._listen_for_answers()
                await self._send(subject, body, f"{self._answer_subject}.{number}")
                return await answer
        except TimeoutError:
            raise RequestTimeout(subject, timeout_s) from None
        except _Unheard:
            raise NoResponders(subject) from None
        finally:
            del self._answers[number]
            answer.cancel()

    async def subscribe(
        self, subject: str, *, group: str | None = None, limit: int | None = None
    ) -> Subscription[BusMessage]:
        check_pattern(subject)
        if group is not None:
            check_name(group, field="group")
        most = check_limit(limit, MessageClass.of(subject))
        self._check_open()

        async def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._subscriptions.remove(made)
            if not self._closed and not self._client.is_closed:
                with contextlib.suppress(Exception):  # the server forgets it with the connection
                    await wire.unsubscribe()
                    await _known(self._client)

        made: Subscription[BusMessage] = Subscription(most, unsubscribe)

        async def take(message: Msg) -> None:
            made.put(BusMessage(subject=message.subject, body=message.data, reply=message.reply or None))

        wire = await self._subscribe(subject, group or "", take)
        self._subscriptions.append(made)
        return made

    async def presence(self, *, limit: int | None = None) -> Subscription[PresenceNotice]:
        most = check_limit(limit, MessageClass.CONTROL)
        self._check_open()

        async def unsubscribe() -> None:
            self._watching.remove(made)

        made: Subscription[PresenceNotice] = Subscription(most, unsubscribe)
        self._watching.append(made)
        return made

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(BusClosed(self._name))
        for subscription in [*self._subscriptions, *self._watching]:
            subscription.end()
        for client in (self._watcher, self._client):
            if client is not None:
                with contextlib.suppress(Exception):  # what is not sent by now is lost, as it may be at any time
                    async with asyncio.timeout(1):
                        await client.flush(1)
                await client.close()

    # within -------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise BusClosed(self._name)

    async def _send(self, subject: str, body: bytes, reply: str) -> None:
        from nats.errors import ConnectionClosedError, OutboundBufferLimitError  # noqa: PLC0415 - an extra

        try:
            await self._client.publish(subject, body, reply=reply)
        except OutboundBufferLimitError:
            self.unsent += 1  # lost, as a message may be at any time
        except ConnectionClosedError:
            raise BusClosed(self._name) from None

    async def _subscribe(self, subject: str, group: str, take: Callable[[Msg], Awaitable[None]]) -> Any:
        wire = await self._client.subscribe(subject, queue=group, cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
        with contextlib.suppress(Exception):  # without a connection it is known to the server when that is back
            await _known(self._client)
        return wire

    async def _listen_for_answers(self) -> None:
        if self._answer_subject:
            return
        async with self._starting:
            if not self._answer_subject:
                subject = self._client.new_inbox()
                await self._subscribe(f"{subject}.*", "", self._answered)
                self._answer_subject = subject

    async def _answered(self, message: Msg) -> None:
        answer = self._answers.get(message.subject.rpartition(".")[2])
        if answer is None or answer.done():
            return
        if message.headers and message.headers.get(_STATUS) == _NO_RESPONDERS:
            answer.set_exception(_Unheard())
        else:
            answer.set_result(message.data)

    async def _noticed(self, message: Msg) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            event = msgspec.json.decode(message.data, type=_SystemEvent)
            opened = message.subject.endswith(".CONNECT")
            if event.client.peer and event.client.peer != self._name:
                notice = PresenceNotice(peer=event.client.peer, connection=str(event.client.id), opened=opened)
                for subscription in self._watching:
                    subscription.put(notice)

    async def _failed(self, error: Exception) -> None:
        text = self.last_error = _shown(error)
        log.log(logging.WARNING if "ermission" in text else logging.DEBUG, "bus client=%s: %s", self._name, text)

    async def _disconnected(self) -> None:
        if not self._closed:
            log.warning("bus away client=%s; connecting again until it is back", self._name)

    async def _reconnected(self) -> None:
        log.warning("bus is back client=%s", self._name)


class _Unheard(Exception):
    """The server answered that nothing is subscribed."""


async def _known(client: Client) -> None:
    """Wait until the server has processed what was sent. One flush can overtake a subscription that still waits in the
    client."""
    if client.is_connected:
        await client.flush(5)
        await client.flush(5)


def _shown(error: BaseException) -> str:
    """An error without the credentials of a URL that it may contain."""
    return re.sub(r"//[^@/ ]*@", "//***@", f"{type(error).__name__}: {error}".rstrip(": "))


__all__ = ["NatsBus", "connect_nats"]
