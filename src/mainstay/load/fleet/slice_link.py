"""One slice, as the leader of its fleet sees it: commands until they are answered, its clock, its windows, its loss."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from ...bus import Bus
from ...clock import Clock
from ...errors import BusClosed, BusError, InvalidInput, NoResponders
from ..generator_process import GeneratorLost
from ..stats.model import WINDOW_MS, Window
from .messages import (
    AnswerPart,
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
from .settings import FleetMember, FleetSettings

log = logging.getLogger("mainstay.load")

#: between two requests that nothing answers
_RETRY_S = 0.1
#: windows that are asked for at once
_MOST_WANTED = 50
#: how often a slice may answer without a window that it should have kept
_MOST_ASKED = 3


class SliceLink:
    """Sends commands to a slice. Every call ends with an answer, or with `GeneratorLost` once the slice is silent for
    too long.

    `on_window` takes each window once; `on_change` is called when it is lost, or its processes have ended."""

    def __init__(
        self,
        bus: Bus,
        member: FleetMember,
        *,
        job: str,
        number: int,
        epoch: int,
        settings: FleetSettings,
        clock: Clock,
        steady: Callable[[], float],
        on_window: Callable[[Window], None],
        on_change: Callable[[], None],
    ) -> None:
        self.member = member
        self.number = number
        self.peer_clock = PeerClock()
        self.loss: GeneratorLost | None = None
        self.is_over = False
        """none of its processes is left"""
        self.start_late_s = 0.0
        self.received = self.repaired = self.repeated = 0
        self._bus = bus
        self._job = job
        self._epoch = epoch
        self._settings = settings
        self._clock = clock
        self._steady = steady
        self._on_window = on_window
        self._on_change = on_change
        self._lost = asyncio.Event()
        self._doing = "it was preparing"
        self._numbers = 0
        self._echo_s: float | None = None
        self._is_served = True
        self._heard_ms = 0
        """when it last answered; 0: never"""
        self._silent_s: float | None = None
        """None: it may not have started yet"""
        self._patience_s = settings.lost_s
        self._go = 0
        self._upto = 0
        self._beyond: set[int] = set()
        self._due = 0
        """windows that should have arrived"""
        self._first_bucket = self._last_bucket = 0

    @property
    def name(self) -> str:
        return f"slice {self.number} ({self.member.node})"

    # commands ---------------------------------------------------------------------------------------

    async def ask(
        self, order: SliceOrder, *, doing: str = "", calls: int = 0, answer_s: float | None = None
    ) -> SliceAnswer:
        """Have an order executed, and return the answer. `doing`: what the slice does in that time, for the error if it
        is lost. `answer_s`: after which time an order that is answered at once is sent again."""
        self._doing = doing or self._doing
        command = self._command(order, self._next_number(), calls)
        within_s = answer_s or self._settings.poll_s + self._settings.answer_s
        body = b""
        while True:
            answer = await self._send(command, within_s)
            if isinstance(answer, AnswerPart):
                body += answer.body
                command.part += 1
                if command.part < answer.of:
                    continue
                answer = decode_answer(body)
            if isinstance(answer, CommandRefused):
                if answer.field:
                    raise InvalidInput(answer.field, answer.rule)
                raise self.not_done(answer.rule)
            if answer is not None and not isinstance(answer, CommandPending):
                return answer

    async def release(self) -> None:
        """End the processes and the service of the slice."""
        command = self._command(ReleaseSlice(), self._next_number())
        with contextlib.suppress(GeneratorLost):
            while isinstance(
                await self._send(command, self._settings.poll_s + self._settings.answer_s), CommandPending | None
            ):
                if not self._is_served:
                    return  # its answer was lost, or it never began

    def not_done(self, why: str) -> GeneratorLost:
        """An error of this slice."""
        return GeneratorLost(f"{self.name}: {why}" + ("" if self._heard_ms else "; it was never heard"))

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _command(self, order: SliceOrder, number: int, calls: int = 0) -> SliceCommand:
        return SliceCommand(
            job=self._job,
            slice=self.number,
            token=self.member.token,
            epoch=self._epoch,
            number=number,
            calls=calls,
            order=order,
        )

    async def _send(self, command: SliceCommand, within_s: float) -> SliceAnswer | None:
        """The answer to a request; None if there was none in time."""
        if self.loss is not None:
            raise self.loss
        subject = command_subject(self.member.node, self._job, self.number)
        asking = asyncio.ensure_future(self._bus.request(subject, encode(command), within_s))
        losing = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({asking, losing}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                assert self.loss is not None
                raise self.loss
            answer: SliceAnswer = decode_answer(asking.result())
        except BusClosed as error:
            self.lose(str(error))
            assert self.loss is not None
            raise self.loss from None
        except BusError as error:
            self._is_served = not isinstance(error, NoResponders)
            # not answered in time, or nothing is subscribed: it may be starting, or about to come back
            await asyncio.sleep(_RETRY_S)
            return None
        except msgspec.MsgspecError as error:
            raise GeneratorLost(f"{self.name} sent an answer that cannot be read ({error})") from None
        finally:
            asking.cancel()
            losing.cancel()
        self._silent_s = 0.0
        self._heard_ms = self._clock.now_ms()
        return answer

    # contact ----------------------------------------------------------------------------------------

    async def keep_contact(self) -> None:
        """Ask for its state again and again, until it is lost."""
        last_s = self._steady()
        longest_s = self._settings.ping_s + self._settings.answer_s
        with contextlib.suppress(GeneratorLost):
            while True:
                beat = await self.ping()
                # only time in which this process was awake counts, and one step of it at most
                passed_s, last_s = min(self._steady() - last_s, longest_s), self._steady()
                if beat is None and self._silent_s is not None:
                    self._silent_s += passed_s
                    if self._silent_s >= self._patience_s:
                        since = f", since {_time_text(self._heard_ms)}" if self._heard_ms else ""
                        self.lose(f"it has not answered for {self._silent_s:.0f} s{since}")
                if beat is not None:
                    await asyncio.sleep(self._settings.ping_s)

    def hurry(self) -> None:
        """The run was given up: a slice that is silent is lost soon, also one that may not have started yet."""
        self._patience_s = self._settings.let_go_s
        self._silent_s = self._silent_s or 0.0

    async def ping(self) -> SliceBeat | None:
        """Its state, if it answers in time; measures its clock, and asks for windows that were lost."""
        wanted = [number for number in range(self._upto, self._due) if number not in self._beyond][:_MOST_WANTED]
        ping = PingSlice(echo_s=self._echo_s, go=self._go, upto=self._upto, wanted=wanted)
        command = self._command(ping, 0)
        sent_s = self._steady()
        answer = await self._send(command, self._settings.answer_s)
        if isinstance(answer, CommandRefused):
            self.lose(answer.rule)
        if not isinstance(answer, SliceBeat):
            return None
        self.peer_clock.add(sent_s=sent_s, peer_s=answer.steady_s, received_s=self._steady())
        self._echo_s = max(answer.steady_s, self._echo_s or answer.steady_s)
        for part in answer.repaired:
            self.repaired += self.take(part)
        if answer.go == self._go:
            self._due = max(self._due, answer.windows)
        if answer.over and not self.is_over:
            self.is_over = True
            self._on_change()
        return answer

    def lose(self, how: str) -> None:
        """Count the slice as lost."""
        if self.loss is None:
            known_s = (self._last_bucket + 1 - self._first_bucket) * WINDOW_MS / 1000 if self._last_bucket else 0.0
            gap = f"; what it did later than {known_s:.1f} s after the start is unknown" if self._go else ""
            self.loss = GeneratorLost(f"{self.name} was lost, while {self._doing}: {how}{gap}")
            log.warning("job=%s %s", self._job, self.loss)
            self._lost.set()
            self._on_change()

    # windows ----------------------------------------------------------------------------------------

    def open(self, go: int) -> None:
        """Expect the windows of this go."""
        self._go, self._upto, self._beyond, self._due = go, 0, set(), 0
        self._first_bucket = self._last_bucket = 0

    def take(self, part: SliceWindow) -> bool:
        """Take a window; whether it is new. One of an older assignment, or of a go that is over, is dropped."""
        if part.token != self.member.token or part.go != self._go:
            return False
        if part.number < self._upto or part.number in self._beyond:
            self.repeated += 1
            return False
        self._beyond.add(part.number)
        while self._upto in self._beyond:
            self._beyond.remove(self._upto)
            self._upto += 1
        self.received += 1
        self._first_bucket = min(self._first_bucket or part.window.bucket, part.window.bucket)
        self._last_bucket = max(self._last_bucket, part.window.bucket)
        self._on_window(part.window)
        return True

    async def receive_all(self, windows: int) -> None:
        """Wait until all windows of a go that is over have arrived."""
        self._due, asked = windows, 0
        while (before := self._upto) < windows:
            answered = await self.ping() is not None
            asked = asked + answered if self._upto == before else 0
            if asked == _MOST_ASKED:
                raise self.not_done(f"it has not kept window {before} of {windows}")


def _time_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S UTC")


__all__ = ["SliceLink"]
