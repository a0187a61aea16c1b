"""The work of one slice, without the bus: a runner that obeys orders, and what must be kept of its load."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ...errors import InvalidInput
from ..engine.messages import CollectProvided, GiveUp, SetUp, StartInstant, StopRun, TearDown
from ..generator_process import GeneratorLost, LineHandler
from ..runner import LoadRunner, MakeSliceRunner
from ..stats.model import Window
from ..stats.sums import WindowSum
from ..stats.tally import merge_windows
from .context_limit import within_context
from .messages import (
    PART_BYTES,
    AdoptGo,
    CollectEnd,
    CommandAccepted,
    CommandRefused,
    GoAdopted,
    KillSlice,
    PingSlice,
    PrepareSlice,
    SliceAnswer,
    SliceBeat,
    SliceEnd,
    SliceOrder,
    SliceWindow,
    StartSlice,
    encode,
)
from .together import HOLDS_S, TOGETHER

#: steps, checks and metrics in one message; a step takes up to 10 KB
_MOST_STATS = 50
#: for notes of the start and the end to be stored, once the slice is released
_STORE_S = 5.0

log = logging.getLogger("mainstay.load")


class SliceWork:
    """Obeys the orders of a leader, each given once. `on_windows` takes the windows to send, some at a time.

    `on_start` is called once, before the first load begins, and `on_end` with the end of each go. The load waits for
    neither. `until`: to when the load may go on, if nothing stops it."""

    def __init__(
        self,
        token: int,
        node: str,
        make: MakeSliceRunner,
        on_windows: Callable[[Sequence[SliceWindow]], None],
        on_line: LineHandler,
        *,
        steady: Callable[[], float],
        until: Callable[[], float],
        on_start: Callable[[], Awaitable[None]] | None = None,
        on_end: Callable[[SliceEnd], Awaitable[None]] | None = None,
    ) -> None:
        self._token = token
        self._node = node
        self._on_start = on_start
        self._on_end = on_end
        self._storing: set[asyncio.Task[None]] = set()
        self._make = make
        self._on_windows = on_windows
        self._on_line = on_line
        self._steady = steady
        self._until = until
        self._runner: LoadRunner | None = None
        self._prepared = False
        self._preparing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._stops: list[StopRun | GiveUp | KillSlice] = []
        """that came before there was a runner"""
        self._refusal = ""
        """why it starts nothing any more"""
        self._isolated = False
        self._stopped = False
        self._is_told = False
        """a leader has stopped the run"""
        self._go = 0
        self._barred = 0
        self._order: StartSlice | None = None
        self._going: asyncio.Task[None] | None = None
        self._end: SliceEnd | None = None
        self._kept: dict[int, SliceWindow] = {}
        """by number: those that the leader has not confirmed. Without contact to it the load ends, so they are few"""
        self._windows = 0
        self._unsent: list[SliceWindow] = []
        """the newest ones"""
        self._total = WindowSum()
        self._together = (TOGETHER, math.inf)
        """buckets in one message, and until when that holds"""

    @property
    def has_result(self) -> bool:
        """Whether there was load that a leader may ask about."""
        return self._go > 0

    async def obey(self, order: SliceOrder, calls: int) -> SliceAnswer:
        """Execute an order. Never raises."""
        try:
            return await self._execute(order, calls)
        except InvalidInput as error:
            return CommandRefused(field=error.field, rule=error.rule)
        except GeneratorLost as error:
            return CommandRefused(rule=str(error))
        except Exception as error:
            log.exception("a slice could not execute %s", type(order).__name__)
            return CommandRefused(rule=f"{type(order).__name__} failed: {type(error).__name__}: {error}")

    def beat(self, ping: PingSlice) -> SliceBeat:
        """The state, with the windows that were lost. Forgets those that have arrived."""
        self._together = (max(1, ping.together), self._steady() + HOLDS_S)
        repaired: list[SliceWindow] = []
        if ping.go == self._go:
            while self._kept and (first := next(iter(self._kept))) < ping.upto:
                del self._kept[first]
            repaired = self._lost(ping.gaps)
        return SliceBeat(
            steady_s=self._steady(),
            prepared=self._prepared and not self._refusal,
            over=self._runner is not None and self._runner.ended.done(),
            go=self._go,
            windows=self._windows - len(self._unsent),
            repaired=repaired,
        )

    def _lost(self, gaps: Sequence[tuple[int, int]]) -> list[SliceWindow]:
        """The sums of windows that did not arrive: as many as an answer has room for."""
        found: list[SliceWindow] = []
        room = PART_BYTES
        for first, end in gaps:
            parts = [part for number, part in self._kept.items() if first <= number < end]
            for whole in joined(parts):
                room -= len(encode(whole))
                if found and room < 0:
                    return found
                found.append(whole)
        return found

    def refuse(self, why: str) -> None:
        """End the load, and start nothing any more. The processes stay for the leader or its successor."""
        self._isolated, self._refusal = True, why
        self._apply(GiveUp())

    async def close(self) -> None:
        """End the processes. It goes on until they have ended, also if its callers are cancelled."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._refusal = self._refusal or "the slice was released"
        for task in (self._preparing, self._going):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        runner, self._runner, self._prepared = self._runner, None, False
        if runner is not None:
            await runner.__aexit__(None, None, None)
        if self._storing:
            await asyncio.wait(self._storing, timeout=_STORE_S)
            for task in self._storing:
                task.cancel()

    async def _execute(self, order: SliceOrder, calls: int) -> SliceAnswer:
        match order:
            case PrepareSlice():
                await self._prepare(order)
            case StartSlice():
                self._start(order)
            case StopRun() | GiveUp() | KillSlice():
                self._is_told = True
                self._apply(order)
            case AdoptGo(go):
                return self._adopted(go)
            case CollectEnd(go):
                return await self._collect(go)
            case SetUp(workflows, shared):
                return within_context(await self._ready().set_up(workflows, shared, calls=calls))
            case CollectProvided(workflows):
                return within_context(await self._ready().collect_provided(workflows, calls=calls))
            case TearDown(workflows):
                return within_context(await self._ready(refusing=False).tear_down(workflows, calls=calls))
        return CommandAccepted()

    def _ready(self, *, refusing: bool = True) -> LoadRunner:
        if refusing and self._refusal:
            raise GeneratorLost(self._refusal)
        if self._runner is None or not self._prepared:
            raise GeneratorLost("the slice is not prepared")
        return self._runner

    async def _prepare(self, order: PrepareSlice) -> None:
        if self._refusal:
            raise GeneratorLost(self._refusal)
        if self._prepared:
            return  # a successor of the leader asks, too
        if self._runner is not None or (self._preparing is not None and not self._preparing.done()):
            raise GeneratorLost("the slice was asked to prepare before, and is not ready")
        # a task that can be waited for: processes that have begun must have ended when the slice is closed
        self._preparing = asyncio.ensure_future(self._begin(order))
        await asyncio.wait([self._preparing])
        if self._preparing.cancelled():
            raise GeneratorLost(self._refusal)
        self._preparing.result()

    async def _begin(self, order: PrepareSlice) -> None:
        runner = self._make(
            order.processes,
            self._add,
            on_line=self._on_line,
            limits=order.limits,
            first=order.first,
            of=order.of,
            until=self._until,
        )
        self._runner = await runner.__aenter__()
        for stop in self._stops:
            self._apply(stop)
        await self._runner.prepare(order.order)
        self._prepared = True

    def _apply(self, stop: StopRun | GiveUp | KillSlice) -> None:
        # an order to go may arrive after the stop that was sent later
        self._stopped = True
        if self._runner is None:
            self._stops.append(stop)
            return
        match stop:
            case StopRun(hurry):
                self._runner.stop(hurry=hurry)
            case GiveUp():
                self._runner.give_up()
            case KillSlice():
                self._runner.kill()

    # the load ---------------------------------------------------------------------------------------

    def _start(self, order: StartSlice) -> None:
        runner = self._ready()
        if self._going is not None and not self._going.done():
            raise GeneratorLost("the slice is under load already")
        if order.go <= max(self._go, self._barred):
            raise GeneratorLost(f"go {order.go} is over; the last one is {self._go}")
        if self._stopped:
            raise GeneratorLost("the run was stopped before")
        after_s = order.at_s - self._steady()
        if after_s <= 0:
            raise GeneratorLost(f"the order to go arrived {-after_s:.3g} s after the agreed instant")
        if self._on_start is not None and not self._go:
            self._store(self._on_start())
        self._go, self._order, self._end = order.go, order, None
        self._kept, self._windows, self._unsent, self._total = {}, 0, [], WindowSum()
        start = StartInstant(
            after_s=after_s, wall=order.wall, begin_s=order.begin_s, done=order.done, together=TOGETHER
        )
        self._going = asyncio.ensure_future(self._load(runner, order, start))

    def _store(self, note: Awaitable[None]) -> None:
        async def store() -> None:
            try:
                await note
            except Exception:
                log.exception("a note of a slice was not stored")

        task = asyncio.ensure_future(store())
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def _load(self, runner: LoadRunner, order: StartSlice, start: StartInstant) -> None:
        reports: list[Any] = []
        try:
            reports, lost = await runner.go(
                order.workflows, order.shared, longest_s=order.longest_s, drain_s=order.drain_s, start=start
            )
            loss = "" if lost is None else str(lost)
        except Exception as error:
            log.exception("the load of a slice broke")
            loss = f"{type(error).__name__}: {error}"
        self._send()
        self._end = SliceEnd(
            go=order.go,
            token=self._token,
            reports=reports,
            loss=loss,
            isolated=self._isolated,
            stopped=self._is_told,
            windows=self._windows,
            total=self._total.window() if self._windows else None,
        )
        if self._on_end is not None:
            self._store(self._on_end(self._end))

    def _adopted(self, go: int) -> GoAdopted:
        order = self._order
        if order is None or go != self._go:
            # from now on, the order of the leader before is refused for its epoch
            return GoAdopted(began=False)
        # they are in the sum
        self._kept.clear()
        self._unsent.clear()
        return GoAdopted(
            began=True,
            at_s=order.at_s,
            wall=order.wall,
            begin_s=order.begin_s,
            windows=self._windows,
            total=self._total.window() if self._windows else None,
            doubt_s=order.doubt_s,
        )

    def _bar(self, go: int) -> None:
        """Begin no go up to this one any more: the leader was told that it never began."""
        self._barred = max(self._barred, go)

    async def _collect(self, go: int) -> SliceEnd:
        if go != self._go or self._going is None:
            if go < self._go:
                raise GeneratorLost(f"go {go} is over; the last one is {self._go}")
            self._bar(go)
        if self._going is None or self._barred == go:
            return SliceEnd(go=go, reports=[], loss="", isolated=False, windows=0, total=None, began=False)
        await asyncio.wait([self._going])
        if self._end is None:
            raise GeneratorLost("the slice was released")
        return self._end

    def _add(self, window: Window) -> None:
        for health in window.health.values():
            health.node = self._node
        self._total.add(window)
        for small in divided(window):
            part = SliceWindow(token=self._token, go=self._go, number=self._windows, window=small)
            self._kept[part.number] = part
            self._unsent.append(part)
            self._windows += 1
        together = self._buckets_together
        if (window.bucket + window.width) // together > self._unsent[0].window.bucket // together:
            self._send()

    @property
    def _buckets_together(self) -> int:
        together, until_s = self._together
        return together if self._steady() < until_s else TOGETHER

    def _send(self) -> None:
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            # a leader that has much to do merges one sum, not each of its windows
            self._on_windows(joined(unsent) if self._buckets_together > TOGETHER else unsent)


def divided(window: Window) -> list[Window]:
    """A window in parts that one message has room for; their sum is the window."""
    most = max(len(window.steps), len(window.checks), len(window.metrics))
    if most <= 1 or (most <= _MOST_STATS and len(encode(window)) <= PART_BYTES):
        return [window]
    size = min(_MOST_STATS, -(-most // 2))
    first, *rest = (slice(at, at + size) for at in range(0, most, size))
    parts = [replace(window, **_stats(window, first))]
    parts += [Window(bucket=window.bucket, process=window.process, **_stats(window, own)) for own in rest]
    return [small for part in parts for small in divided(part)]


def _stats(window: Window, own: slice) -> dict[str, Any]:
    return {"steps": window.steps[own], "checks": window.checks[own], "metrics": window.metrics[own]}


def joined(parts: Sequence[SliceWindow]) -> list[SliceWindow]:
    """Windows with numbers that follow each other, in fewer: neighbours are added while a message has room for their
    sum."""
    if len(parts) < 2:
        return list(parts)
    whole = replace(
        parts[0], count=sum(part.count for part in parts), window=merge_windows(part.window for part in parts)
    )
    if len(encode(whole)) <= PART_BYTES:
        return [whole]
    middle = len(parts) // 2
    return joined(parts[:middle]) + joined(parts[middle:])


__all__ = ["SliceWork", "divided", "joined"]
