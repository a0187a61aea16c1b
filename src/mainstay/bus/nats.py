"""The bus on a NATS server (core NATS, no JetStream), with nats-py.

Messages go into our own bounded queues from the callback of nats-py: its own queues drop the newest message when they
are full, ours the oldest. Presence comes from the events of the server's system account, which its configuration
imports into the account of our clients. Which servers there are, and which one answers, is found by `seeds`, also after
a connection was lost: nats-py gets the addresses that are valid now.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ..clock import duration_text
from ..errors import BusClosed, BusError, InvalidInput, MissingExtra, NoResponders, RequestTimeout
from .client_tls import TLS_FILES, BusTls, client_tls
from .engine import PING_VARZ, BusEngine, read_varz
from .port import BusMessage, PresenceNotice, check_body, check_limit, check_timeout
from .refusals import shown_error
from .seeds import JoinSettings, SeedEndpoint, SeedFinder, SeedNetwork, SystemNetwork, waits
from .servers import BusServers, after_servers, parse_servers
from .subjects import INBOX, MessageClass, check_name, check_pattern, check_reply, check_subject
from .subscription import Subscription

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

log = logging.getLogger("mainstay.bus")

#: between two tries of nats-py to connect again
_RECONNECT_S = 0.5
_CONNECT_TIMEOUT_S = 2
#: how long one of our tries to connect lasts
_TRY_S = 3.0
#: how often the client asks whether the server lives; two lost answers end the connection
_PING_S = 2
#: how long closing may take
_CLOSE_S = 2.0
#: bytes that wait while there is no connection; more are refused
_PENDING_BYTES = 8 * 1024 * 1024
#: refusals of permissions that are remembered
_DENIED_KEPT = 20
_NO_RESPONDERS = "503"
_STATUS = "Status"
#: the user of a certificate of `mainstay cluster certs`
_HOLDER = re.compile(r"CN=(?P<role>\w+):(?P<name>[^,]+),")
#: the account of our clients; others, as the system account itself, are not reported
ACCOUNT = "CLUSTER"
PRESENCE_SUBJECTS = (f"$SYS.ACCOUNT.{ACCOUNT}.CONNECT", f"$SYS.ACCOUNT.{ACCOUNT}.DISCONNECT")


class _SystemClient(msgspec.Struct):
    id: int = 0
    name: str = ""
    user: str = ""


class _SystemEvent(msgspec.Struct):
    client: _SystemClient


async def connect_nats(
    servers: str | BusServers,
    *,
    name: str,
    inbox: str = INBOX,
    tls: BusTls | None = None,
    timeout_s: float | None = None,
    join: JoinSettings | None = None,
    network: SeedNetwork | None = None,
    rng: random.Random | None = None,
) -> NatsBus:
    """Connect a client.

    `servers` is a URL with one or more servers, and with the credentials. `inbox` begins the subjects of answers to
    this client: with permissions for it, no other client reads them. Without `timeout_s` it tries until one answers;
    with it, it also ends when a server refuses the client.
    """
    check_name(name, field="name")
    try:
        from nats.errors import Error  # noqa: PLC0415 - an extra

        from .nats_client import PersistentClient  # noqa: PLC0415 - as above
    except ImportError:
        raise MissingExtra("bus", "nats-py is not installed; run: pip install 'mainstay[cluster]'") from None
    if tls is not None:
        logging.getLogger("asyncio").addFilter(_is_useful)
    if isinstance(servers, str):
        servers = parse_servers(servers, secure=True if tls is not None else None)
    rng, join = rng or random.Random(), join or JoinSettings()
    finder = SeedFinder(servers.seeds, network=network or SystemNetwork(tls), settings=join, rng=rng)
    bus = NatsBus(name, inbox, servers=servers, finder=finder, join=join, tls=tls, rng=rng)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    for wait_s in waits(join, rng):
        async with contextlib.aclosing(finder.live()) as found:
            async for endpoint in found:
                client = PersistentClient()
                try:
                    async with asyncio.timeout(_TRY_S if timeout_s is None else min(_TRY_S, timeout_s)):
                        await bus.open(client, endpoint)
                except (OSError, Error, TimeoutError) as error:
                    await _close(client)
                    finder.refused(endpoint, error)
                else:
                    return bus
        failed = finder.failed
        if timeout_s is not None and (loop.time() + wait_s - begun_s > timeout_s or finder.refusals):
            raise BusError(f"no server of the bus can be used: {_reasons(failed)}")
        bus.join_log.failed(failed, wait_s)
        await asyncio.sleep(wait_s)
    raise AssertionError("the waits never end")  # pragma: no cover


def _may_be_called(name: str, user: str) -> bool:
    """Whether a client with this certificate may have this name: a node must not look as if another one had gone. Users
    with passwords are on loopback, and have no names.

    >>> user = "CN=node:n1,OU=shop/default,O=mainstay"
    >>> [_may_be_called(name, user) for name in ("node.n1", "node.n1.store", "node.n2")]
    [True, True, False]
    """
    holder = _HOLDER.match(user)
    return holder is None or f"{name}.".startswith(f"{holder['role']}.{holder['name']}.")


def _is_useful(record: logging.LogRecord) -> bool:
    """Whether to keep a line of asyncio: it warns at each end of a connection that nats-py has made with TLS, and an
    operator can do nothing about it."""
    return "returning true from eof_received()" not in record.getMessage()


def _reasons(failed: dict[str, str]) -> str:
    return "; ".join(f"{server}: {reason}" for server, reason in sorted(failed.items()))


class JoinLog:
    """Writes a line when the reasons change why no server can be used, and not at each try."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._reasons = ""
        #: searches without a server, since the last one that was found
        self.tries = 0

    def failed(self, failed: dict[str, str], wait_s: float) -> None:
        """A search without a server has ended."""
        self.tries += 1
        reasons = _reasons(failed)
        if reasons != self._reasons:
            log.warning(
                "bus away client=%s tries=%d; next in %s: %s",
                self._client,
                self.tries,
                duration_text(round(wait_s, 1)),
                reasons,
            )
        self._reasons = reasons

    def found(self, endpoint: SeedEndpoint, failed: dict[str, str]) -> None:
        """A server has accepted this client."""
        if failed or self.tries:
            more = f"; of no use: {_reasons(failed)}" if failed else ""
            log.info("bus found client=%s server=%s%s", self._client, endpoint.text, more)
        self._reasons, self.tries = "", 0


class NatsBus:
    """One client of a NATS server. It is a `Bus`; `connect_nats` makes it."""

    def __init__(
        self,
        name: str,
        inbox: str,
        *,
        servers: BusServers,
        finder: SeedFinder,
        join: JoinSettings,
        tls: BusTls | None,
        rng: random.Random,
    ) -> None:
        self._name = name
        self._inbox = inbox
        self._servers = servers
        self._finder = finder
        self._join = join
        self._tls = tls
        self._rng = rng
        self._client: Client
        self._attached = False
        self._closed = False
        self._watch_wires: list[Any] = []
        self._search: asyncio.Task[None] | None = None
        self.join_log = JoinLog(name)
        self._numbers = itertools.count(1)
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._answer_subject = ""
        self._subscriptions: list[Subscription[Any]] = []
        self._watching: list[Subscription[PresenceNotice]] = []
        self._starting = asyncio.Lock()
        self.dropped: Counter[MessageClass] = Counter()
        #: what the server or the connection said last; empty: nothing went wrong
        self.last_error = ""
        #: what the server did not let this client publish or subscribe to
        self.denied: list[str] = []
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

    @property
    def connected_port(self) -> int | None:
        """The port of the server that it is connected to, or was last."""
        found = self._client.connected_url
        return None if found is None else found.port

    # for connect_nats ---------------------------------------------------------------------------

    async def open(self, client: Client, endpoint: SeedEndpoint) -> None:
        """Connect to one server; other servers are tried when this connection is lost."""
        await client.connect(
            servers=[self._url_of(endpoint)],
            error_cb=self._failed,
            disconnected_cb=self._disconnected,
            reconnected_cb=self._reconnected,
            **self._options(self._name),
        )
        client.options["allow_reconnect"] = True
        self._client, self._attached = client, True
        self._use(endpoint)
        self.join_log.found(endpoint, self._finder.failed)

    def _options(self, name: str) -> dict[str, Any]:
        """How nats-py connects: once, since it never says why it tries again."""
        return {
            "name": name,
            "inbox_prefix": self._inbox.encode(),
            "allow_reconnect": False,
            "dont_randomize": True,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": _RECONNECT_S,
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "ping_interval": _PING_S,
            "max_outstanding_pings": 2,
            "pending_size": _PENDING_BYTES,
            # without the handshake first, a server could answer that it wants no TLS
            **({} if self._tls is None else {"tls": self._tls, "tls_handshake_first": True}),
        }

    def _url_of(self, endpoint: SeedEndpoint) -> str:
        if self._tls is not None:
            self._tls.names[endpoint.address] = endpoint.seed.host
        return self._servers.server_url(endpoint.address, endpoint.seed.port)

    def _use(self, first: SeedEndpoint | None) -> None:
        """Give nats-py the servers for its next try, one that answers first."""
        known = self._finder.endpoints()
        self._rng.shuffle(known)
        ordered = dict.fromkeys(known if first is None else [first, *known])
        if ordered and not self._client.is_closed:
            self._client.set_server_pool([self._url_of(endpoint) for endpoint in ordered])

    async def _find_again(self) -> None:
        """While there is no connection: look for a server that answers, with the addresses that are valid now."""
        for wait_s in waits(self._join, self._rng):
            if self._found_again():
                return
            found: SeedEndpoint | None = None
            async with contextlib.aclosing(self._finder.live()) as live:
                async for endpoint in live:
                    found = endpoint
                    break
            if self._found_again():
                return
            self._use(found)
            if found is None:
                self.join_log.failed(self._finder.failed, wait_s)
            await asyncio.sleep(wait_s)

    def _found_again(self) -> bool:
        return self._closed or self._client.is_connected

    # about the server ---------------------------------------------------------------------------

    @property
    def max_payload(self) -> int:
        """The largest message that the server carries, in bytes."""
        return self._client.max_payload

    @property
    def server_version(self) -> tuple[int, int, int]:
        """Of the server of this connection."""
        found = self._client.connected_server_version
        return found.major, found.minor, found.patch

    async def engines(self, window_s: float = 0.5) -> list[BusEngine]:
        """How the servers are configured, of all that answer in this time; empty: this client may not ask."""
        self._check_open()
        found: dict[str, BusEngine] = {}

        async def take(message: Msg) -> None:
            with contextlib.suppress(msgspec.MsgspecError):
                each = read_varz(message.data)
                found[each.name] = each

        inbox = self._client.new_inbox()
        wire = await self._subscribe(inbox, "", take)
        try:
            await self._client.publish(PING_VARZ, b"", reply=inbox)
            await asyncio.sleep(window_s)
        finally:
            with contextlib.suppress(Exception):
                await wire.unsubscribe()
        return [found[name] for name in sorted(found)]

    async def shows_presence(self, timeout_s: float = 1.0) -> bool:
        """Whether connections are reported to this client: it opens one, and waits for the notice of it."""
        from nats.aio.client import Client  # noqa: PLC0415 - an extra
        from nats.errors import Error  # noqa: PLC0415 - an extra

        name = f"{self._name}.test.{self._rng.getrandbits(32):08x}"
        current = self._client.connected_url
        if current is None:
            return False
        async with await self.presence() as notices:
            client = Client()
            try:
                async with asyncio.timeout(timeout_s):
                    await client.connect(servers=[current.geturl()], error_cb=_ignored, **self._options(name))
                    async for notice in notices:
                        if notice.peer == name:
                            return True
            except (OSError, Error, TimeoutError):
                pass
            finally:
                with contextlib.suppress(Exception):
                    await client.close()
        return False

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
        kind = MessageClass.of(subject)
        most = check_limit(limit, kind)
        self._check_open()

        def on_drop() -> None:
            self.dropped[kind] += 1

        async def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._subscriptions.remove(made)
            if not self._closed and not self._client.is_closed:
                with contextlib.suppress(Exception):  # the server forgets it with the connection
                    await wire.unsubscribe()
                    await _known(self._client)

        made: Subscription[BusMessage] = Subscription(most, unsubscribe, on_drop)

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
        if not self._watch_wires:
            self._watch_wires = [await self._subscribe(subject, "", self._noticed) for subject in PRESENCE_SUBJECTS]
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
        if self._search is not None:
            self._search.cancel()
        await _close(self._client)

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
            client = event.client
            if client.name and client.name != self._name and _may_be_called(client.name, client.user):
                notice = PresenceNotice(peer=client.name, connection=str(client.id), opened=opened)
                for subscription in self._watching:
                    subscription.put(notice)

    async def _failed(self, error: Exception) -> None:
        text = self.last_error = shown_error(error)
        # a caller that asked before a connection was lost can no longer be answered
        denied = "ermission" in text and f'"{INBOX.lower()}.' not in text.lower()
        if denied and text not in self.denied and len(self.denied) < _DENIED_KEPT:
            self.denied.append(text)
        log.log(logging.WARNING if denied else logging.DEBUG, "bus client=%s: %s", self._name, text)

    async def _disconnected(self) -> None:
        if self._closed or not self._attached:
            return
        log.warning("bus away client=%s; connecting again until it is back", self._name)
        if self._tls is not None:
            try:
                self._tls.read_files()
            except InvalidInput as error:  # half written, for example: the old ones still count
                log.warning("bus client=%s: cannot read its certificate again: %s", self._name, error)
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._find_again(), name="mainstay bus seeds")

    async def _reconnected(self) -> None:
        log.warning("bus is back client=%s", self._name)
        self.join_log = JoinLog(self._name)


async def _ignored(error: Exception) -> None:
    """The caller gets it, too."""


class _Unheard(Exception):
    """The server answered that nothing is subscribed."""


async def _close(client: Client) -> None:
    """Close a connection, whatever its state."""
    if client.is_connected:
        with contextlib.suppress(Exception):  # what is not sent by now is lost, as it may be at any time
            async with asyncio.timeout(1):
                await client.flush(1)
    # nats-py would write the rest to a connection that may be gone, fail, and leave its tasks behind
    client._pending, client._pending_data_size = [], 0  # noqa: SLF001
    try:
        # while it connects again, nats-py waits for the end of a connection that was never made
        async with asyncio.timeout(_CLOSE_S):
            await client.close()
    except (OSError, RuntimeError, TimeoutError) as error:  # the connection ended at the same moment
        log.debug("bus not closed cleanly: %s", shown_error(error))


async def _known(client: Client) -> None:
    """Wait until the server has processed what was sent. One flush can overtake a subscription that still waits in the
    client."""
    if client.is_connected:
        await client.flush(5)
        await client.flush(5)


__all__ = [
    "ACCOUNT",
    "PING_VARZ",
    "PRESENCE_SUBJECTS",
    "TLS_FILES",
    "BusEngine",
    "BusServers",
    "BusTls",
    "JoinLog",
    "JoinSettings",
    "NatsBus",
    "after_servers",
    "client_tls",
    "connect_nats",
    "parse_servers",
]
