"""Which nodes are alive, as a service of a manager: it brings what the bus and the store say to `membership.decide`,
and carries out the actions. It decides nothing itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

import msgspec

from ..bus import Bus, BusMessage, Subscription
from ..clock import Clock
from ..errors import BusClosed, BusError, MainstayError, NotLeader
from ..model import Leadership, Session
from ..stores import JobStore
from ..stores.remote import compatible, may_answer
from .journal import ClusterJournal
from .liveness_settings import LivenessSettings
from .manager_words import answers_beat
from .member_messages import (
    CLOSED,
    ENDED,
    HEARD,
    AskAnswer,
    AskArguments,
    BeatAnswer,
    ClosedMessage,
    EndedMessage,
    HeardMessage,
    MemberAnswer,
    MemberEnvelope,
    NodeEnd,
    pack,
    unpack,
)
from .membership import Membership, decide
from .membership_events import (
    Alarm,
    AskResult,
    AskThrough,
    BeatHeard,
    BusAway,
    BusBack,
    CloseNode,
    HeardElsewhere,
    JournalNote,
    Leading,
    ManagerStopped,
    MarkAway,
    MarkBack,
    MembershipAction,
    MembershipEvent,
    NodeClosed,
    NodeEnded,
    PresenceClosed,
    SessionsClosed,
    SessionStart,
    StoreAway,
    StoreBack,
    StoredManagers,
    StoredSessions,
    Tick,
)
from .node_messages import NodeRates, checked_beat, checked_end
from .node_record import active_sessions, degraded_sessions, heard_list, may_claim, node_infos
from .status import NodeBeat, NodeInfo

log = logging.getLogger(__name__)

#: how long a call of the store may take before the manager counts as cut off from it
STORE_TIMEOUT_S = 5.0
#: how often the sessions in the store are read
STORE_EVERY_S = 2.0
#: nodes of other clusters that are remembered, so that each is named once
_FOREIGN_KEPT = 1000
TICK_S = 1.0
_MOST_NODES = 10_000


class MembersService:
    """Follows the nodes of a cluster for one manager. Used as `async with MembersService(...)`.

    `leading` returns the leadership of `placement` while this manager holds it, `led_elsewhere` whether the store says
    that another session does. `node_of` names the node of a session
    in the store, and is only asked about standing sessions; `node_of_peer` names the node of a client of the bus.
    `changed` is called when a node becomes active, away or closed.
    """

    def __init__(
        self,
        bus: Bus,
        store: JobStore,
        *,
        manager: str,
        leading: Callable[[], Leadership | None],
        clock: Clock,
        rng: random.Random,
        led_elsewhere: Callable[[], bool] = lambda: False,
        settings: LivenessSettings | None = None,
        journal: ClusterJournal | None = None,
        version: str = "",
        cluster: str = "",
        environment: str = "",
        now_s: Callable[[], float] | None = None,
        changed: Callable[[], None] = lambda: None,
        node_of: Callable[[Session], str] = lambda session: session.node or session.worker,
        node_of_peer: Callable[[str], str] = lambda peer: peer.removeprefix("node."),
    ) -> None:
        self.settings = settings or LivenessSettings()
        self.state = Membership(manager=manager, settings=self.settings, version=version)
        #: messages that could not be used, by reason
        self.ignored: Counter[str] = Counter()
        self._rates = NodeRates()
        #: nodes that were closed while this manager led, by cause
        self.closed: Counter[str] = Counter()
        self._bus = bus
        self._store = store
        self._manager = manager
        self._leading = leading
        self._led_elsewhere = led_elsewhere
        self._clock = clock
        self._rng = rng
        self._journal = journal
        self._envelope = MemberEnvelope(v=version, c=cluster, e=environment)
        self._now = now_s
        self._changed = changed
        self._node_of = node_of
        self._node_of_peer = node_of_peer
        self._epoch: int | None = None
        self._echo_s = 0.0
        self._alarms: dict[str, str] = {}
        self._closing: set[str] = set()
        self._foreign: dict[str, None] = {}
        """nodes of another cluster that were named in the log"""
        self._subscriptions: list[Subscription[Any]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # for the manager ------------------------------------------------------------------------------

    def nodes(self) -> list[NodeInfo]:
        """All known nodes, by name."""
        return node_infos(self.state, now_s=self._now_s(), now_ms=self._clock.now_ms())

    def active_sessions(self) -> set[str]:
        """The sessions that may get new work."""
        return active_sessions(self.state)

    def degraded_sessions(self) -> set[str]:
        """The sessions of nodes that get new work after all others."""
        return degraded_sessions(self.state)

    def may_claim(self, node: str) -> bool:
        """Whether a node may get new work: it is heard, or joins."""
        return may_claim(self.state, node)

    def managers(self) -> list[str]:
        """The managers that were heard within the last seconds, and this one."""
        return sorted({self._manager, *self.state.managers})

    def alarms(self) -> dict[str, str]:
        """What an operator should look at: sort and name of an alarm -> a sentence."""
        return dict(self._alarms)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Subscribe, then follow in the background."""
        self._echo_s = self._now_s()
        handlers: list[tuple[str, str | None, Callable[[BusMessage], Awaitable[None]]]] = [
            ("control.beat.*", None, self._take_beat),
            (HEARD, None, self._take_heard),
            (CLOSED, None, self._take_closed),
            (ENDED, None, self._take_ended),
            ("control.ended.*", "managers", self._take_end_report),
            (f"control.manager.{self._manager}.ask", None, self._take_ask),
        ]
        for subject, group, handler in handlers:
            subscription = await self._bus.subscribe(subject, group=group)
            self._subscriptions.append(subscription)
            self._spawn(self._read(subscription, handler))
        presence = await self._bus.presence()
        self._subscriptions.append(presence)
        self._spawn(self._read(presence, self._take_presence))
        for work, every_s in (
            (self._publish_heard, self.settings.heard_every_s),
            (self._tick, TICK_S),
            (self._read_store, STORE_EVERY_S),
        ):
            self._spawn(self._repeat(work, every_s))

    async def stop(self) -> None:
        """Stop, and tell the other managers. A second call does nothing."""
        if self._subscriptions:
            with contextlib.suppress(BusError):
                await self._bus.publish(HEARD, pack(HeardMessage(manager=self._manager, heard={}, leaving=True)))
        for subscription in self._subscriptions:
            await subscription.close()
        self._subscriptions = []
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # what arrives ---------------------------------------------------------------------------------

    async def _read(self, subscription: Subscription[Any], handler: Callable[[Any], Awaitable[None]]) -> None:
        async for message in subscription:
            try:
                await handler(message)
            except BusClosed:
                return
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                self._ignore("damaged", "cannot read a message: subject=%s error=%s", message.subject, str(error)[:200])
            except MainstayError as error:
                log.warning("cannot answer a message: subject=%s error=%s", message.subject, error)
            except Exception:
                # a manager that reads no beats would take every node for dead
                self.ignored["failed"] += 1
                log.exception("a message about nodes failed")

    def _ignore(self, reason: str, text: str, *values: object) -> None:
        """Count a message that is not used. The first of a hundred is logged: the sender decides how many there are."""
        if self.ignored[reason] % 100 == 0:
            log.warning(text, *values)
        self.ignored[reason] += 1

    async def _take_beat(self, message: BusMessage) -> None:
        node = _last_token(message.subject)
        if not self._rates.admits(node, self._now_s()):
            self._ignore("flood", "too many messages of a node: node=%s", node)
            return
        beat = checked_beat(unpack(message.body, type=NodeBeat), node)  # the server checks the subject only
        if beat is None:
            self._ignore("beat", "a heartbeat is not that of its sender, or is too large: node=%s", node)
            return
        if beat.cluster and not self._is_of_this_cluster("beat", node, beat.cluster, beat.environment):
            return
        if node not in self.state.nodes and len(self.state.nodes) >= _MOST_NODES:
            self._ignore("nodes", "there are too many nodes: node=%s", node)
            return
        self._feed(BeatHeard(beat=beat))
        if message.reply is None or not may_answer(message.reply, "node", node):
            return
        if answers_beat(self.state, beat, self._now_s(), led_elsewhere=self._led_elsewhere()):
            closed = self.state.nodes[node].closed
            await self._answer(message, BeatAnswer(closed=tuple(each for each in beat.sessions if each in closed)))

    def _is_of_this_cluster(self, what: str, node: str, cluster: str, environment: str) -> bool:
        if (cluster, environment) == (self._envelope.c, self._envelope.e):
            return True
        self.ignored["cluster"] += 1
        if node not in self._foreign:
            ours, theirs = f"{self._envelope.c}/{self._envelope.e}", f"{cluster[:80]}/{environment[:80]}"
            log.warning("refused reason=cluster: %s of node %s, which is of %s and not of %s", what, node, theirs, ours)
            self._foreign[node] = None
            while len(self._foreign) > _FOREIGN_KEPT:
                self._foreign.pop(next(iter(self._foreign)))
        return False

    async def _take_heard(self, message: BusMessage) -> None:
        told = unpack(message.body, type=HeardMessage)
        if told.manager == self._manager:
            self._echo_s = self._now_s()
            self._feed(BusBack())
        elif told.leaving:
            self._feed(ManagerStopped(manager=told.manager))
        else:
            self._feed(HeardElsewhere(manager=told.manager, heard=told.heard, leads=told.leads, managers=told.managers))

    async def _take_closed(self, message: BusMessage) -> None:
        found = unpack(message.body, type=ClosedMessage)
        if found.manager != self._manager:
            self._feed(NodeClosed(manager=found.manager, node=found.node, sessions=found.sessions, reason=found.reason))

    async def _take_ended(self, message: BusMessage) -> None:
        found = unpack(message.body, type=EndedMessage)
        if found.manager != self._manager:
            self._end(found.node, found.end)

    async def _take_end_report(self, message: BusMessage) -> None:
        """A node's parent reports its end to one manager, which passes it on: the leader may be another."""
        node = _last_token(message.subject)
        if not self._rates.admits(node, self._now_s()):
            self._ignore("flood", "too many messages of a node: node=%s", node)
            return
        request = unpack(message.body, type=MemberEnvelope)
        if not self._is_of_this_cluster("report", node, request.c, request.e):
            return
        if self._envelope.v and not compatible(self._envelope.v, request.v):
            self._ignore("version", "the end of node %s is reported by version %s", node, request.v[:40])
            return
        end = checked_end(unpack(request.a, type=NodeEnd), node)
        self._end(node, end)
        await self._bus.publish(ENDED, pack(EndedMessage(manager=self._manager, node=node, end=end)))
        if may_answer(message.reply, "node", node):
            await self._answer(message, True)

    def _end(self, node: str, end: NodeEnd) -> None:
        self._feed(NodeEnded(node=node, incarnation=end.incarnation, how=end.how, sessions=end.sessions))

    async def _take_presence(self, notice: Any) -> None:
        if not notice.opened:
            self._feed(PresenceClosed(node=self._node_of_peer(notice.peer)))

    async def _take_ask(self, message: BusMessage) -> None:
        request = unpack(message.body, type=MemberEnvelope)
        arguments = unpack(request.a, type=AskArguments)
        self._spawn(self._answer_ask(message, arguments.node))

    async def _answer_ask(self, message: BusMessage, node: str) -> None:
        record = self.state.nodes.get(node)
        if record is not None and self._now_s() - record.own_s < self.settings.away_s:
            found: AskAnswer | None = AskAnswer(incarnation=record.beat.incarnation)
        else:
            found = await self._ping(node)
        if found is not None:
            await self._answer(message, found)

    async def _answer(self, message: BusMessage, value: object) -> None:
        if message.reply is not None:
            answer = MemberAnswer(ok=value, now=self._clock.now_ms(), m=self._manager)
            await self._bus.publish(message.reply, pack(answer))

    # what happens by time -------------------------------------------------------------------------

    async def _repeat(self, work: Callable[[], Awaitable[None]], every_s: float) -> None:
        while True:
            try:
                await work()
            except BusClosed:
                return
            except MainstayError as error:
                log.warning("cannot follow the nodes: error=%s", error)
            except Exception:
                log.exception("following the nodes failed; trying again")
            # not all managers at the same moment
            await asyncio.sleep(every_s * self._rng.uniform(0.9, 1.0))

    async def _publish_heard(self) -> None:
        message = HeardMessage(
            manager=self._manager,
            heard=heard_list(self.state, self._now_s()),
            leads=self._leading() is not None,
            managers=tuple(self.state.managers),
        )
        await self._bus.publish(HEARD, pack(message))

    async def _tick(self) -> None:
        if self._now_s() - self._echo_s >= self.settings.manager_silent_s:
            self._feed(BusAway())
        self._feed(Tick())

    async def _read_store(self) -> None:
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                sessions = await self._store.sessions()
        except (MainstayError, TimeoutError) as error:
            log.warning("cannot read the sessions in the store: error=%s", error)
            self._feed(StoreAway())
            return
        self._feed(StoreBack())
        self._feed(
            StoredManagers(names=frozenset(each.worker for each in sessions if not (each.standing or each.dead)))
        )
        if self._leading() is None:
            return
        found: dict[str, tuple[str, ...]] = {}
        starts: dict[str, SessionStart] = {}
        for session in sessions:
            if session.standing and not session.dead and (node := self._node_of(session)):
                found[node] = (*found.get(node, ()), session.id)
                start = SessionStart(host=session.host, pid=session.supervisor, at_ms=session.started_ms)
                starts[session.id] = start
        self._feed(StoredSessions(sessions=found, starts=starts))

    # what follows ---------------------------------------------------------------------------------

    def _feed(self, event: MembershipEvent) -> None:
        self._follow_lead()
        self._carry_out(decide(self.state, event, self._now_s()))

    def _follow_lead(self) -> None:
        lead = self._leading()
        epoch = None if lead is None else lead.epoch
        if epoch != self._epoch:
            self._epoch = epoch
            event = Leading(leads=epoch is not None, since_s=self._now_s())
            self._carry_out(decide(self.state, event, self._now_s()))

    def _carry_out(self, actions: list[MembershipAction]) -> None:
        for action in actions:
            match action:
                case CloseNode():
                    self._spawn(self._close(action))
                case AskThrough(node=node, managers=managers):
                    for manager in managers:
                        self._spawn(self._ask(node, manager))
                case JournalNote():
                    self._note(action)
                case Alarm(key=key, text=text, on=on):
                    self._alarm(key, text, on=on)
                case MarkAway() | MarkBack():
                    pass  # the state holds it; the journal has the note
        if any(not isinstance(action, AskThrough) for action in actions):
            self._changed()

    def _note(self, note: JournalNote) -> None:
        more = f" cause={note.cause}" if note.cause else ""
        more += "" if note.seconds is None else f" seconds={note.seconds:g}"
        log.info("%s: event=%s about=%s%s", note.text, note.event, note.about, more)
        if note.event == "node_closed" and note.cause and self.state.leads:
            self.closed[note.cause] += 1
        if self._journal is None:
            return
        try:
            self._journal.append(
                note.event, note.about, note.text, manager=self._manager, cause=note.cause, seconds=note.seconds
            )
        except OSError as error:  # a full disk must not stop the judging of nodes
            log.warning("cannot write the journal: error=%s", error)

    def _alarm(self, key: str, text: str, *, on: bool) -> None:
        if on and key not in self._alarms:
            log.warning("alarm: %s", text)
        elif not on and key in self._alarms:
            log.info("alarm over: %s", text)
        if on:
            self._alarms[key] = text
        else:
            self._alarms.pop(key, None)

    async def _close(self, action: CloseNode) -> None:
        closed: list[str] = []
        try:
            for session in action.sessions:
                lead = self._leading()
                if session in self._closing or session not in self.state.pending:
                    continue  # on its way, or the node was heard in the meantime
                if lead is None:
                    return
                self._closing.add(session)
                try:
                    async with asyncio.timeout(STORE_TIMEOUT_S):
                        await self._store.close_session(session, lead=lead)
                finally:
                    self._closing.discard(session)
                closed.append(session)
        except NotLeader:
            log.info("lost the lead before a node was closed: node=%s", action.node)
        except (MainstayError, TimeoutError) as error:  # requested again
            log.warning("cannot close a session: node=%s error=%s", action.node, error)
        finally:
            if closed:
                self._feed(SessionsClosed(sessions=tuple(closed)))
        if closed:
            message = ClosedMessage(
                manager=self._manager, node=action.node, sessions=tuple(closed), reason=action.reason
            )
            await self._bus.publish(CLOSED, pack(message))

    async def _ask(self, node: str, manager: str) -> None:
        found = await (self._ping(node) if manager == self._manager else self._ask_manager(node, manager))
        if found is not None:
            self._feed(AskResult(node=node, manager=manager, answered=found.answered, incarnation=found.incarnation))

    async def _ping(self, node: str) -> AskAnswer | None:
        try:
            body = await self._bus.request(f"control.node.{node}.ping", self._request({}), self.settings.ask_timeout_s)
        except BusClosed:
            return None
        except MainstayError:  # no answer in time, or nothing is connected under the name
            return AskAnswer(answered=False)
        return _answer_of(body)

    async def _ask_manager(self, node: str, manager: str) -> AskAnswer | None:
        """The word of another manager; None: it is not known."""
        request = self._request(AskArguments(node=node))
        try:
            body = await self._bus.request(
                f"control.manager.{manager}.ask", request, self.settings.ask_timeout_s + TICK_S
            )
        except MainstayError:
            return None
        return _answer_of(body)

    def _request(self, arguments: object) -> bytes:
        message_id = f"{self._rng.getrandbits(128):032x}"
        return pack(msgspec.structs.replace(self._envelope, id=message_id, a=msgspec.Raw(pack(arguments))))

    def _now_s(self) -> float:
        return self._now() if self._now is not None else asyncio.get_running_loop().time()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, BusClosed):
            log.error("following the nodes failed", exc_info=error)


def _last_token(subject: str) -> str:
    return subject.rpartition(".")[2]


def _answer_of(body: bytes) -> AskAnswer:
    """Any answer is a sign of life; one that can be read tells more."""
    try:
        return msgspec.convert(unpack(body, type=MemberAnswer).ok or {}, AskAnswer)
    except msgspec.MsgspecError:
        return AskAnswer()


__all__ = ["STORE_EVERY_S", "STORE_TIMEOUT_S", "TICK_S", "MembersService"]
