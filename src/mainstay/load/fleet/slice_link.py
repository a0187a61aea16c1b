"""One assignment of a slice, as the leader of its fleet sees it: commands until they are answered, its clock, its
windows, its loss."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from ...bus import Bus
from ...clock import Clock
from ...errors import BusClosed, BusError, InvalidInput, NoResponders, StaleClaim
from ..generator_process import GeneratorLost
from ..stats.model import SliceReport, Window
from .message_checks import beat_fault, load_buckets, part_fault
from .messages import (
    MOST_PARTS,
    UNREADABLE,
    AnswerPart,
    CommandAccepted,
    CommandPending,
    CommandRefused,
    PingSlice,
    ReleaseSlice,
    SliceAnswer,
    SliceBeat,
    SliceCommand,
    SliceOrder,
    SliceWindow,
    command_subject,
    decode_answer,
    encode,
)
from .peer_clock import PeerClock
from .received_windows import ReceivedWindows
from .settings import FleetMember, FleetSettings
from .together import TOGETHER

log = logging.getLogger("mainstay.load")

A = TypeVar("A", bound=SliceAnswer)

#: between two requests that nothing answers
_RETRY_S = 0.1
#: names of steps, checks and metrics together: a process has 1,000 metrics at most
_MOST_NAMES = 100_000
#: how often a slice may answer without a window that it should have kept
_MOST_ASKED = 3


class SliceLink:
    """Sends commands to a slice. Every call ends with an answer, or with `GeneratorLost` once the slice is silent for
    too long. Raises `StaleClaim` if the slice has a newer leader, and `BusClosed` if this one has left the bus. A slice
    that sends what cannot be true is lost.

    `on_window` takes each window once; `on_change` is called when it is lost, or its processes have ended. `leads` asks
    the store whether this leader is the last one: what a slice says about that is not enough."""

    def __init__(
        self,
        bus: Bus,
        member: FleetMember,
        *,
        job: str,
        number: int,
        first: int = 0,
        epoch: int,
        settings: FleetSettings,
        clock: Clock,
        steady: Callable[[], float],
        leads: Callable[[], Awaitable[bool]],
        together: Callable[[], int] = lambda: TOGETHER,
        on_window: Callable[[Window], None],
        on_change: Callable[[], None],
    ) -> None:
        """`first`: the number of its first process, in the run. `together`: how many buckets it is to put into one
        message."""
        self.member = member
        self.number = number
        self.peer_clock = PeerClock()
        self.loss: GeneratorLost | None = None
        self.lost = asyncio.Event()
        self.is_over = False
        """none of its processes is left"""
        self.is_ready = False
        """it is prepared, and its clock is known"""
        self.is_fenced = False
        """the store says that the assignment is over"""
        self.is_released = False
        """it was ended because the run is over"""
        self.go = 0
        """the last one that it was ordered"""
        self.is_loading = False
        """from an order to go until the end of that load is known"""
        self.start_late_s = 0.0
        self.start_doubt_s: float | None = None
        """how far off its clock may have been when it was last ordered to go"""
        self.repaired = 0
        self.windows = ReceivedWindows(on_window, wall_s=0.0)
        self.processes = range(first, first + member.processes)
        self._bus = bus
        self._job = job
        self._epoch = epoch
        self._settings = settings
        self._clock = clock
        self._steady = steady
        self._leads = leads
        self._together = together
        self._on_window = on_window
        self._on_change = on_change
        self._doing = "it was preparing"
        self._numbers = 0
        self._echo_s: float | None = None
        self._is_served = True
        self._heard_ms = 0
        """when it last answered; 0: never"""
        self._silent_s: float | None = None
        """None: it may not have started yet"""
        self._patience_s = settings.lost_s
        self._is_stopping = False
        self._is_unconfirmed = False
        """it was told to stop, and did not answer"""
        self._moved_s = 0.0
        """when its load last made progress"""
        self._begins_s = (math.inf, 0.0)
        """when it begins, by the clock of this machine, and by that from which windows are numbered"""

    @property
    def name(self) -> str:
        return f"slice {self.number} ({self.member.node})"

    @property
    def clock_doubt_s(self) -> float | None:
        """How far off its clock may be: once it was ordered to go, what that order may be off."""
        measured_s = self.peer_clock.doubt_s if len(self.peer_clock) else None
        return measured_s if self.start_doubt_s is None else self.start_doubt_s

    # commands ---------------------------------------------------------------------------------------

    async def ask(
        self,
        order: SliceOrder,
        expected: type[A],
        *,
        key: str = "",
        doing: str = "",
        calls: int = 0,
        answer_s: float | None = None,
        limit_s: float = math.inf,
    ) -> A:
        """Have an order executed, and return the answer, which is of this type. `key`: of an order that is executed
        once, also if a leader before this one has sent it. `doing`: what the slice does in that time, for the error if
        it is lost. `answer_s`: after which time an order that is answered at once is sent again. `limit_s`: how long a
        slice may answer that it is not done."""
        self._doing = doing or self._doing
        command = self._command(order, self._next_number(), calls, key)
        within_s = answer_s or self._within_s
        until_s = self._steady() + limit_s
        body, of = b"", 0
        while True:
            answer = await self._send(command, within_s)
            if answer is None:
                # round trips may take longer than the fastest one, all of them
                within_s = min(self._within_s, 2 * within_s)
                continue
            if isinstance(answer, CommandPending):
                if self._steady() >= until_s:
                    raise self.not_done(f"it was not done {limit_s:.0f} s after it was asked, while {self._doing}")
                continue
            if isinstance(answer, AnswerPart):
                of = of or answer.of
                if not command.part < answer.of == of <= MOST_PARTS:
                    raise self.not_done(f"it sent part {command.part} of {answer.of} of an answer")
                body += answer.body
                command.part += 1
                if command.part < of:
                    continue
                answer = self._decoded(body)
            if isinstance(answer, CommandRefused):
                if answer.field:
                    raise InvalidInput(answer.field, answer.rule)
                raise self.not_done(answer.rule)
            if not isinstance(answer, expected):
                raise self.not_done(f"it answered with {type(answer).__name__}, while {self._doing}")
            return answer

    async def release(self) -> None:
        """End the processes and the service of the slice."""
        self.is_released = True
        command = self._command(ReleaseSlice(), self._next_number())
        try:
            while isinstance(await self._send(command, self._within_s), CommandPending | None):
                if not self._is_served:
                    return  # its answer was lost, or it never began
        except (GeneratorLost, StaleClaim):
            return

    async def dismiss(self) -> bool:
        """End a slice that was lost but may still be reached. Returns whether the assignment is over; if not, it was
        without contact for so long that its load is."""
        command = self._command(ReleaseSlice(lost=str(self.loss)), self._next_number())
        silent_s, last_s = self._silent_s or 0.0, self._steady()
        until_s = last_s + self._settings.stall_s
        while True:
            try:
                answer = await self._request(command, self._within_s)
            except GeneratorLost:
                # an unreadable answer does not count as contact
                answer = None
                await asyncio.sleep(_RETRY_S)
            if isinstance(answer, CommandAccepted | CommandRefused):
                return True  # a refusal: it belongs to another machine, and has ended
            if last_s >= until_s:
                return self.is_fenced
            passed_s, last_s = self._passed(last_s), self._steady()
            silent_s = 0.0 if answer is not None else silent_s + passed_s
            # if the store says that its node is gone, one that lives is heard at once
            if silent_s >= (self._settings.answer_s if self.is_fenced else self._settings.lost_s):
                return self.is_fenced

    def not_done(self, why: str) -> GeneratorLost:
        """An error of this slice."""
        return GeneratorLost(f"{self.name}: {why}" + ("" if self._heard_ms else "; it was never heard"))

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    @property
    def _within_s(self) -> float:
        return self._settings.poll_s + self._settings.answer_s

    def _command(self, order: SliceOrder, number: int, calls: int = 0, key: str = "") -> SliceCommand:
        return SliceCommand(
            job=self._job,
            slice=self.number,
            token=self.member.token,
            epoch=self._epoch,
            number=number,
            key=key,
            calls=calls,
            order=order,
        )

    async def _send(self, command: SliceCommand, within_s: float) -> SliceAnswer | None:
        """The answer to a request; None if there was none in time. Raises once the slice is lost."""
        if self.loss is not None:
            raise self.loss
        asking = asyncio.ensure_future(self._request(command, within_s))
        losing = asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait({asking, losing}, return_when=asyncio.FIRST_COMPLETED)
            if self.loss is not None:
                raise self.loss
            answer = asking.result()
        finally:
            asking.cancel()
            losing.cancel()
            await asyncio.wait({asking, losing})
            if not asking.cancelled():
                asking.exception()  # retrieved: the slice was lost at the same moment
        if answer is not None:
            self._silent_s = 0.0
            self._heard_ms = self._clock.now_ms()
        return answer

    async def _request(self, command: SliceCommand, within_s: float) -> SliceAnswer | None:
        """The same without an end: also of a slice that is lost."""
        subject = command_subject(self.member.node, self._job, self.number)
        sent_s = self._steady()
        try:
            body = await self._bus.request(subject, encode(command), within_s)
        except BusClosed:
            raise  # this process has left the bus, which says nothing about the slice
        except BusError as error:
            self._is_served = not isinstance(error, NoResponders)
            # not answered in time, or nothing is subscribed: it may be starting, or about to come back
            await asyncio.sleep(_RETRY_S)
            return None
        answer = self._decoded(body)
        if isinstance(answer, CommandRefused) and answer.epoch > self._epoch:
            if not await self._leads():
                raise StaleClaim(f"{self.name} has a newer leader: {answer.rule}")
            raise GeneratorLost(f"{self.name} names a leader of epoch {answer.epoch}, which the store does not know")
        if isinstance(answer, CommandPending):
            # it works on a command for as long before it says so; one that does not must not keep this process busy
            await asyncio.sleep(self._settings.poll_s - (self._steady() - sent_s))
        return answer

    def _decoded(self, body: bytes) -> SliceAnswer:
        try:
            answer: SliceAnswer = decode_answer(body)
        except UNREADABLE as error:
            raise GeneratorLost(f"{self.name} sent an answer that cannot be read ({error})") from None
        return answer

    # contact ----------------------------------------------------------------------------------------

    async def keep_contact(self) -> None:
        """Ask for its state again and again, until it is lost."""
        last_s = self._steady()
        try:
            while True:
                beat = await self.ping()
                passed_s, last_s = self._passed(last_s), self._steady()
                if beat is None and self._silent_s is not None:
                    self._silent_s += passed_s
                    if self._silent_s >= self._patience_s:
                        self.lose(self._silence())
                if beat is not None:
                    await asyncio.sleep(self._settings.ping_s)
        except GeneratorLost as error:
            self.fail(error)

    def _passed(self, since_s: float) -> float:
        """The time of one step: only time in which this process was awake counts."""
        return min(self._steady() - since_s, self._settings.ping_s + self._settings.answer_s)

    def _silence(self) -> str:
        since = f", since {_time_text(self._heard_ms)}" if self._heard_ms else ""
        silence = f"it has not answered for {self._silent_s:.0f} s{since}"
        if not self._is_stopping:
            return silence
        self._is_unconfirmed = True
        limit_s = self._settings.isolation_s
        return f"its stop is unconfirmed: {silence}. Without contact, it stops by itself within {limit_s:g} s"

    def expect(self) -> None:
        """It has answered a leader before: a silence counts from now on."""
        self._silent_s = self._silent_s or 0.0

    def expect_load(self) -> None:
        """It was ordered to go by a leader before: whether it can go on is found out with what it did."""
        self.expect()
        self.is_loading, self._moved_s = True, self._steady()

    def hurry(self, within_s: float) -> None:
        """The run is ending: a slice that is silent is lost soon, also one that may not have started yet."""
        self._is_stopping = True
        self.expect()
        self._patience_s = min(self._patience_s, (self._silent_s or 0.0) + within_s)

    async def ping(self) -> SliceBeat | None:
        """Its state, if it answers in time; measures its clock, and asks for windows that were lost."""
        windows = self.windows
        ping = PingSlice(
            echo_s=self._echo_s, go=self.go, upto=windows.upto, gaps=windows.gaps(), together=self._together()
        )
        sent_s = self._steady()
        answer = await self._send(self._command(ping, 0), self._settings.answer_s)
        if isinstance(answer, CommandRefused):
            self.lose(answer.rule)
        if answer is None or self.loss is not None:
            return None
        if not isinstance(answer, SliceBeat):
            self.lose(f"it answered a ping with {type(answer).__name__}")
            return None
        if fault := beat_fault(answer, go=self.go, upto=windows.upto):
            self.lose(f"it sent a state that cannot be true: {fault}")
            return None
        self.peer_clock.add(sent_s=sent_s, peer_s=answer.steady_s, received_s=self._steady())
        self._echo_s = max(answer.steady_s, self._echo_s or answer.steady_s)
        for part in answer.repaired:
            self.repaired += part.count * self.take(part)
        if answer.go == self.go and answer.windows > windows.due:
            windows.due = answer.windows
            self._moved_s = max(self._moved_s, self._steady())
        self._judge(answer)
        return answer

    def _judge(self, beat: SliceBeat) -> None:
        """Whether a slice that answers can go on."""
        if beat.over and not self.is_over:
            self.is_over = True
            self._on_change()
        if self.is_loading:
            if self._steady() - self._moved_s > self._settings.stall_s:
                self.lose(f"it is stuck: it answers, but has sent no window for {self._settings.stall_s:g} s")
        elif self.is_ready and not self._is_stopping:
            if beat.over:
                self.lose("none of its processes is left")
            elif not beat.prepared:
                self.lose(f"it had no contact for {self._settings.isolation_s:g} s, and ended")

    def lose(self, how: str) -> None:
        """Count the slice as lost."""
        gap = ""
        if self.is_loading:
            known_s = self.windows.known_s
            gap = f"; what it did later than {known_s:.1f} s after the start is unknown" if known_s else ""
        self.fail(GeneratorLost(f"{self.name} was lost, while {self._doing}: {how}{gap}"))

    def fail(self, loss: GeneratorLost) -> None:
        """The same, for an error that says how."""
        if self.loss is None and not self.is_released:
            self.loss = loss
            log.warning("job=%s %s", self._job, self.loss)
            self.lost.set()
            self._on_change()

    # windows ----------------------------------------------------------------------------------------

    def open(self, go: int, *, wall_s: float, at_s: float, begin_s: float = 0.0, upto: int = 0) -> None:
        """Expect the windows of this go, whose load begins at `at_s`."""
        self.go, self.is_loading, self._moved_s = go, True, at_s
        self.repaired, self.start_late_s = 0, 0.0
        self._begins_s = at_s, wall_s + begin_s
        self.windows = ReceivedWindows(self._on_window, wall_s=wall_s, begin_s=begin_s, upto=upto)

    @property
    def loaded_s(self) -> float:
        """How long it can have been under load: this machine may have been suspended, but a slice without contact stops
        before it is lost."""
        return max(0.0, self._steady() - self._begins_s[0]) + self._settings.lost_s

    @property
    def buckets(self) -> range:
        """In which it can have been under load."""
        return load_buckets(self._begins_s[1], self.loaded_s)

    def take(self, part: SliceWindow) -> bool:
        """Take a window; whether it is new. One of an older assignment, or of a go that is over, is dropped."""
        windows = self.windows
        if part.token != self.member.token or part.go != self.go or self.loss is not None:
            return False
        if fault := part_fault(part, upto=windows.upto, buckets=self.buckets, processes=self.processes):
            self.lose(f"it sent a window that cannot be true: {fault}")
            return False
        is_new = windows.take(part.number, part.window, part.count)
        if windows.names > _MOST_NAMES:
            self.lose(f"it has sent more than {_MOST_NAMES} names of steps, checks and metrics")
        return is_new

    async def receive_all(self, windows: int) -> None:
        """Wait until all windows of a go that is over have arrived."""
        received = self.windows
        received.due, asked, known = max(received.due, windows), 0, received.count
        while received.upto < windows:
            answered = await self.ping() is not None
            asked = asked + answered if received.count == known else 0
            known = received.count
            if asked == _MOST_ASKED:
                raise self.not_done(f"it has not kept window {received.upto} of {windows}")

    def report(self) -> SliceReport:
        """Its facts in the last go."""
        windows = self.windows
        return SliceReport(
            slice=self.number,
            token=self.member.token,
            node=self.member.node,
            processes=self.member.processes,
            requests=windows.requests,
            failed=windows.failed,
            begin_s=windows.begin_s,
            clock_doubt_s=self.clock_doubt_s,
            start_late_s=self.start_late_s,
            windows=windows.count,
            repaired_windows=self.repaired,
            repeated_windows=windows.repeated,
            loss="" if self.loss is None else str(self.loss),
            stop="unconfirmed" if self._is_unconfirmed else "",
        )


def _time_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S UTC")


__all__ = ["SliceLink"]
