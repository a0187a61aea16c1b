"""The leads of an engine, in virtual time: which it competes for, and how they follow its session."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

from mainstay.control import LEADER, PLACEMENT, Control, Duty
from mainstay.model import Leadership, Session
from mainstay.stores.memory import MemoryStore
from mainstay.testing import LoopClock, VirtualLoop, run_virtual
from mainstay.worker import Leads
from tests.worker.program import Stage


class PlacingProgram(Stage):
    """A program whose placement duty notes the sessions that ran it."""

    def __init__(self, *, placing: bool = True) -> None:
        super().__init__()
        self.ran: list[str] = []
        self._placing = placing

    def placed_offer(self) -> Mapping[str, Mapping[str, Any]]:
        return {}

    def placement_duties(self, control: Control, session_id: str) -> Sequence[Duty]:
        async def place(lead: Leadership) -> None:
            assert lead.holder == session_id
            self.ran.append(session_id)

        return [Duty("place", 0.5, place)] if self._placing else []


class Office:
    """A store, and the service of one engine."""

    def __init__(self, program: Stage) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.store = MemoryStore(LoopClock(loop))
        self.control = Control(self.store, rng=random.Random(1))
        self.leads = Leads(program, self.control)

    async def session(self, node: str = "") -> Session:
        return await self.control.claims.open_session(worker="w", node=node)

    def holder(self, name: str) -> str | None:
        current = self.store._leaders.current(name)
        return None if current is None else current.holder


def test_the_session_of_a_node_competes_for_both_leads() -> None:
    async def main() -> None:
        program = PlacingProgram()
        office = Office(program)
        session = await office.session("n1")
        await office.leads.start(session)
        await asyncio.sleep(2)

        assert (office.holder(LEADER), office.holder(PLACEMENT)) == (session.id, session.id)
        assert set(program.ran) == {session.id}
        await office.leads.stop()
        assert (office.holder(LEADER), office.holder(PLACEMENT)) == ("", "")

    run_virtual(main())


def test_a_session_without_a_node_or_without_duties_does_not_lead_placement() -> None:
    async def main() -> None:
        for program, node in ((PlacingProgram(), ""), (PlacingProgram(placing=False), "n1"), (Stage(), "n1")):
            office = Office(program)
            session = await office.session(node)
            await office.leads.start(session)
            await asyncio.sleep(2)
            assert (office.holder(LEADER), office.holder(PLACEMENT)) == (session.id, None)
            await office.leads.stop()

    run_virtual(main())


def test_a_drain_gives_up_placement_and_goes_on_with_the_rest() -> None:
    async def main() -> None:
        program = PlacingProgram()
        office = Office(program)
        session = await office.session("n1")
        await office.leads.start(session)
        await asyncio.sleep(2)
        await office.leads.resign_placement()
        ran = len(program.ran)
        await asyncio.sleep(30)

        assert (office.holder(LEADER), office.holder(PLACEMENT)) == (session.id, "")
        assert len(program.ran) == ran
        # a session that is lost during the drain changes nothing about it
        renewed = await office.session("n1")
        await office.leads.start(renewed)
        await asyncio.sleep(30)
        assert (office.holder(LEADER), office.holder(PLACEMENT)) == (renewed.id, "")
        await office.leads.stop()

    run_virtual(main())


def test_a_new_session_takes_both_leads_over() -> None:
    async def main() -> None:
        program = PlacingProgram()
        office = Office(program)
        lost, renewed = await office.session("n1"), await office.session("n1")
        await office.leads.start(lost)
        await asyncio.sleep(2)
        await office.leads.start(renewed)
        await asyncio.sleep(2)

        assert (office.holder(LEADER), office.holder(PLACEMENT)) == (renewed.id, renewed.id)
        assert program.ran[-1] == renewed.id
        await office.leads.stop()

    run_virtual(main())


def test_after_a_stop_nothing_begins_again() -> None:
    async def main() -> None:
        office = Office(PlacingProgram())
        await office.leads.stop()
        await office.leads.start(await office.session("n1"))
        await asyncio.sleep(5)

        assert (office.holder(LEADER), office.holder(PLACEMENT)) == (None, None)

    run_virtual(main())
