"""Setups, provided values and teardowns of a run on nodes: each is executed once, whichever leaders ask for it, and
what it returned is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..engine.messages import CollectProvided, SetUp, TearDown, Values
from ..generator_process import GeneratorLost
from .context_limit import beyond_layer, context_bytes, within_context
from .fleet_context import FleetContext
from .led_slice import LedSlice
from .messages import SliceOrder
from .slice_link import SliceLink


class OnceOrders:
    """Orders to one slice: the first that can execute them."""

    def __init__(self, fleet: FleetContext, slices: Sequence[LedSlice]) -> None:
        self._fleet = fleet
        self._slices = slices
        self._set_ups = self._collects = 0
        self._set_up_by: dict[str, str] = {}
        """by workflow: the key of the order that set it up"""

    async def set_up(self, workflows: Sequence[str], shared: dict[str, dict[str, Any]], *, calls: int) -> Values:
        self._set_ups += 1
        key = f"set_up/{self._set_ups}"
        self._set_up_by.update(dict.fromkeys(workflows, key))
        refused = beyond_layer(shared)
        wanted = [name for name in workflows if name not in refused]
        if not wanted:
            return Values(failed=refused)
        order = SetUp(wanted, {name: own for name, own in shared.items() if name not in refused})
        answer = await self._once(key, order, f"it set up {', '.join(wanted)}", calls)
        return replace(answer, failed={**answer.failed, **refused})

    async def collect(self, workflows: Sequence[str], *, calls: int) -> Values:
        self._collects += 1
        self._forget_set_ups()
        if not workflows:
            return Values()
        doing = f"it collected what {', '.join(workflows)} provides"
        return await self._once(f"collect/{self._collects}", CollectProvided(list(workflows)), doing, calls)

    def _forget_set_ups(self) -> None:
        """What the setups of a load have returned is not needed any more when it is over."""
        record = self._fleet.record
        over = {end.go for end in record.ends}
        for name in [name for go in record.gos if go.go in over for name in go.workflows]:
            key = self._set_up_by.get(name, "")
            if (known := record.answers.get(key)) is not None:
                record.answers[key] = replace(known, values={})

    async def tear_down(self, workflows: Sequence[str], *, calls: int) -> Values:
        """Each workflow is torn down by the process that set it up. If that is lost, no other can."""
        fleet, asked = self._fleet, self._fleet.record.asked
        by_slice: dict[tuple[int, int], list[str]] = {}
        for name in workflows:
            # one that was never set up has nothing to tear down, on any slice
            by_slice.setdefault(asked.get(self._set_up_by.get(name, ""), (0, 0)), []).append(name)
        values = Values()
        for (number, token), names in by_slice.items():
            doing, key = f"it tore down {', '.join(names)}", f"tear_down/{number}/{token}"
            if (known := fleet.record.answers.get(key)) is not None:
                # a leader before this one had it done; its slice may be lost since
                values.failed.update(known.failed)
                continue
            own = self._slices[number]
            try:
                if own.live is None or (token and own.live.member.token != token):
                    raise self._lost(own)
                answer = await self._ask(own.live, key, TearDown(names), doing, calls)
            except GeneratorLost as error:
                if fleet.is_killed or fleet.on_loss in ("fail", "restart"):
                    raise
                answer = Values(failed=dict.fromkeys(names, f"the machine that set it up was lost ({error})"))
            values.failed.update(answer.failed)
        return values

    async def _once(self, key: str, order: SliceOrder, doing: str, calls: int) -> Values:
        """The answer to an order, by the first slice that gives it."""
        fleet = self._fleet
        while True:
            if (known := fleet.record.answers.get(key)) is not None:
                return known
            link = await self._executor(key)
            try:
                return await self._ask(link, key, order, doing, calls)
            except GeneratorLost as error:
                link.fail(error)
                if fleet.is_ending() or fleet.on_loss in ("fail", "restart"):
                    raise
                if calls:
                    fleet.record.notes.append(f"{error}; another machine did it again, so it may have been done twice")

    async def _ask(self, link: SliceLink, key: str, order: SliceOrder, doing: str, calls: int) -> Values:
        record = self._fleet.record
        executor = (link.number, link.member.token)
        if record.asked.get(key) != executor:
            record.asked[key] = executor
            await self._fleet.save()
        fleet = self._fleet
        # a slice ends what takes too long
        limit_s = calls * fleet.limits.once_s + fleet.limits.overtime_s + fleet.settings.lost_s
        answer = await link.ask(order, Values, key=key, doing=doing, calls=calls, limit_s=limit_s)
        answer = within_context(answer, kept=sum(context_bytes(known) for known in record.answers.values()))
        record.answers[key] = answer
        if not self._fleet.is_stopping:
            await self._fleet.save()
        return answer

    async def _executor(self, key: str) -> SliceLink:
        """The slice that was asked before, if it is there; or the first one that has run the last load."""
        fleet = self._fleet
        number, token = fleet.record.asked.get(key, (-1, 0))
        if number >= 0:
            own = self._slices[number]
            # a successor does not know at once where its slices are
            await fleet.until(
                lambda: fleet.is_ending() or own.error or own.link is not None, within_s=fleet.settings.lost_s
            )
            if own.live is not None and own.live.member.token == token:
                return own.live
        await fleet.until(
            lambda: fleet.is_ending() or any(one.ready or one.error for one in self._slices),
            within_s=fleet.settings.ready_s,
        )
        ready = [one.ready for one in self._slices if one.ready is not None]
        if not ready:
            raise self._lost(self._slices[0])
        newest = max(link.go for link in ready)
        return next(link for link in ready if link.go == newest)

    def _lost(self, own: LedSlice) -> GeneratorLost:
        loss = None if own.link is None else own.link.loss
        return loss or GeneratorLost(own.unready("it was replaced"))


__all__ = ["OnceOrders"]
