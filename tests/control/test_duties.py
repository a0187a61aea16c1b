"""The leader's duties: one leads, writes are fenced, nothing dies in silence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from mainstay.control import Control, Duties, Duty
from mainstay.errors import InvalidInput, NotLeader, StoreLocked
from mainstay.model import Leadership, Settings

from .conftest import Bench

#: the virtual lease of these tests, and so how soon the keeper looks again
LEASE_S = 0.03


class Seen:
    """A duty that remembers its runs and can be waited for."""

    def __init__(self, *failures: Exception) -> None:
        self.leads: list[Leadership] = []
        self._failures = list(failures)
        self._ran = asyncio.Condition()

    async def __call__(self, lead: Leadership) -> None:
        async with self._ran:
            self.leads.append(lead)
            self._ran.notify_all()
        if self._failures:
            raise self._failures.pop(0)

    async def runs(self, n: int) -> None:
        async with asyncio.timeout(60), self._ran:
            await self._ran.wait_for(lambda: len(self.leads) >= n)


def _duties(bench: Bench, session: str, duty: Seen, store: Any = None) -> Duties:
    return Duties(store or bench.store, session, [Duty("seen", 0.001, duty)], lease_s=LEASE_S)


async def test_the_leader_runs_its_duties_again_and_again_under_its_epoch(bench: Bench) -> None:
    seen = Seen()
    duties = _duties(bench, "s1", seen)
    duties.start()
    try:
        await seen.runs(3)
        assert duties.leading
        assert {(lead.holder, lead.epoch) for lead in seen.leads} == {("s1", seen.leads[0].epoch)}
    finally:
        await duties.stop()


async def test_only_one_of_two_leads_and_the_other_follows_when_it_stops(bench: Bench) -> None:
    first, second = Seen(), Seen()
    one, two = _duties(bench, "s1", first), _duties(bench, "s2", second)
    one.start()
    await first.runs(1)
    two.start()
    try:
        await first.runs(len(first.leads) + 3)
        assert second.leads == []
        await one.stop()
        await second.runs(1)
        assert second.leads[0].epoch > first.leads[0].epoch
    finally:
        await one.stop()
        await two.stop()


async def test_starting_and_stopping_twice_is_safe_in_any_order(bench: Bench) -> None:
    seen = Seen()
    duties = _duties(bench, "s1", seen)
    await duties.stop()
    duties.start()
    duties.start()
    await seen.runs(1)
    await duties.stop()
    await duties.stop()
    assert not duties.leading

    duties.start()
    await seen.runs(len(seen.leads) + 1)
    await duties.stop()


async def test_a_duty_may_ask_to_be_run_sooner_than_its_interval(bench: Bench) -> None:
    seen = Seen()

    async def eager(lead: Leadership) -> float:
        await seen(lead)
        return 0.001

    duties = Duties(bench.store, "s1", [Duty("eager", 3600, eager)], lease_s=LEASE_S)
    duties.start()
    try:
        await seen.runs(3)
    finally:
        await duties.stop()


async def test_a_long_duty_holds_up_no_other(bench: Bench) -> None:
    seen, stuck = Seen(), Seen()
    never = asyncio.Event()

    async def long(lead: Leadership) -> None:
        await stuck(lead)
        await never.wait()

    duties = Duties(bench.store, "s1", [Duty("long", 0.001, long), Duty("seen", 0.001, seen)], lease_s=LEASE_S)
    duties.start()
    try:
        await stuck.runs(1)
        await seen.runs(3)
    finally:
        await duties.stop()
    assert len(stuck.leads) == 1


async def test_one_refused_duty_ends_the_others_of_that_epoch(bench: Bench) -> None:
    ended = asyncio.Event()
    seen = Seen()

    async def long(_lead: Leadership) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def refused(_lead: Leadership) -> None:
        raise NotLeader("epoch 1 is over")

    duties = Duties(
        bench.store, "s1", [Duty("long", 1, long), Duty("refused", 1, refused), Duty("seen", 1, seen)], lease_s=LEASE_S
    )
    duties.start()
    try:
        async with asyncio.timeout(60):
            await ended.wait()
        await seen.runs(2)  # the keeper looked again, and it leads anew
    finally:
        await duties.stop()


async def test_a_duty_that_fails_is_tried_again(bench: Bench) -> None:
    seen = Seen(RuntimeError("odd"), StoreLocked("busy"))
    duties = _duties(bench, "s1", seen)
    duties.start()
    try:
        await seen.runs(4)
    finally:
        await duties.stop()


async def test_a_refused_write_ends_the_leaders_work_and_the_keeper_looks_again(bench: Bench) -> None:
    seen = Seen(NotLeader("epoch is over"))
    duties = _duties(bench, "s1", seen)
    duties.start()
    try:
        await seen.runs(2)
    finally:
        await duties.stop()


async def test_losing_the_lease_stops_a_duty_in_the_middle(bench: Bench) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def endless(_: Leadership) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    duties = Duties(bench.store, "s1", [Duty("endless", 1, endless)], lease_s=LEASE_S)
    duties.start()
    try:
        async with asyncio.timeout(60):
            await begun.wait()
            while True:
                # the lease ends between two renewals, and somebody else takes it
                bench.clock.advance(60)
                taken = await bench.store.lead("leader", "s2", 1000)
                if taken.holder == "s2":
                    break
            await stopped.wait()
        assert not duties.leading
    finally:
        await duties.stop()


class Away:
    """A store that cannot be reached at first; everything else is the real one."""

    def __init__(self, store: Any, times: int) -> None:
        self._store = store
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def lead(self, *args: Any) -> Leadership:
        if self._left:
            self._left -= 1
            raise StoreLocked("the database is locked")
        found: Leadership = await self._store.lead(*args)
        return found


async def test_a_store_that_was_away_is_led_once_it_is_back(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen()
    duties = _duties(bench, "s1", seen, Away(bench.store, 2))
    duties.start()
    try:
        await seen.runs(1)
    finally:
        await duties.stop()
    assert sum("cannot reach the store" in record.message for record in caplog.records) == 1


async def test_a_duty_in_trouble_tells_once_per_outage(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    away = [StoreLocked("the database is locked") for _ in range(2)]
    seen = Seen(*away, RuntimeError("odd"), *away)
    duties = _duties(bench, "s1", seen)
    with caplog.at_level(logging.INFO, "mainstay.control"):
        duties.start()
        try:
            await seen.runs(7)
        finally:
            await duties.stop()

    told = [record.message for record in caplog.records if "duty seen" in record.message]
    assert [line.partition(" session=")[0] for line in told] == [
        "cannot reach the store for duty seen",
        "duty seen failed",
        "cannot reach the store for duty seen",
        "duty seen works again",
    ]


class Broken(Away):
    """A store with a mistake in it: it is there, but the call fails."""

    async def lead(self, *args: Any) -> Leadership:
        if self._left:
            self._left -= 1
            raise KeyError("no such column")
        found: Leadership = await self._store.lead(*args)
        return found


async def test_an_error_that_is_not_the_stores_is_named_and_tried_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen(RuntimeError("odd"))
    duties = _duties(bench, "s1", seen, Broken(bench.store, 1))
    duties.start()
    try:
        await seen.runs(2)
    finally:
        await duties.stop()

    assert not any("cannot reach the store" in record.message for record in caplog.records)
    told = [record for record in caplog.records if record.exc_info]
    assert ["KeyError('no such column')" in told[0].message, "RuntimeError('odd')" in told[1].message] == [True, True]


async def test_a_session_in_the_place_of_its_id_is_refused(bench: Bench) -> None:
    session: Any = await bench.session()

    with pytest.raises(InvalidInput, match="^session: .* is not a session id; pass its id"):
        bench.control.duties(session)


async def test_control_brings_retention_and_the_given_check(bench: Bench) -> None:
    checked = Seen()
    extra: Sequence[Duty] = ()
    control = Control(bench.store, settings=Settings.of(check="40ms"))
    duties = control.duties("s1", check=checked, extra=extra)
    duties.start()
    try:
        await checked.runs(1)
    finally:
        await duties.stop()


async def test_a_duty_that_costs_much_does_not_come_with_the_rush_of_a_start(bench: Bench) -> None:
    ran: list[str] = []

    async def at_once(_: Leadership) -> None:
        ran.append("at once")

    async def later(_: Leadership) -> None:
        ran.append("later")
        over.set()

    over = asyncio.Event()
    duties = Duties(bench.store, "s1", [Duty("later", 60.0, later, first_s=0.05), Duty("now", 60.0, at_once)])
    duties.start()
    try:
        await over.wait()
    finally:
        await duties.stop()

    assert ran == ["at once", "later"]


class Slow:
    """A store whose answer about leadership is still on its way when everything is stopped."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def lead(self, *args: Any) -> Leadership:
        found: Leadership = await self._store.lead(*args)
        self.asked.set()
        await self.answer.wait()
        return found


async def test_a_lease_won_while_stopping_is_given_up_too(bench: Bench) -> None:
    slow = Slow(bench.store)
    duties = _duties(bench, "s1", Seen(), slow)
    duties.start()
    await slow.asked.wait()
    stopping = asyncio.create_task(duties.stop())
    await asyncio.sleep(0)
    slow.answer.set()
    await stopping

    assert not duties.leading
    assert (await bench.store.lead("leader", "s2", 8.0)).holder == "s2"
