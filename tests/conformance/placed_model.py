"""The model beside a store, with placed work: units that a leader assigns, changes that are written together, and calls
that are sent again because their answer was lost."""

from __future__ import annotations

from typing import Any, Literal

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from mainstay.lifecycle import Move
from mainstay.model import PLACE_QUEUE, Session
from mainstay.stores import Change
from mainstay.stores.port import MARKS_KEPT
from tests.conformance.store_model import HELD, QUEUES, Known, StoreBesideModel

#: its claims and units outlive every other session
STANDING = "standing"
#: what may be wrong with one change of several that are written together
Wrong = Literal["no_session", "conflict", "invalid", "stale"]


class PlacedBesideModel(StoreBesideModel):
    def __init__(self) -> None:
        super().__init__()
        self.gangs: list[list[Change]] = []
        """changes that were written together"""
        self.marks: dict[str, dict[str, list[tuple[str, int]]]] = {}
        """session -> mark -> what it claimed, each with its token"""
        self.marked: list[str] = []
        self.run(self.world.store.open_session(Session(id=STANDING, standing=True, node="n", lease_s=1)))

    def pick_units(self, n: int, most: int, *statuses: str) -> list[str]:
        """Some of the units in these statuses."""
        found = [unit_id for unit_id, known in self.units.items() if known.status in statuses]
        at = n % len(found) if found else 0
        return [*found[at:], *found[:at]][:most]

    def assignment(self, unit_id: str, session: str) -> Change:
        unit = self.row(unit_id)
        fields: dict[str, Any] = {
            "token": unit.token + 1,
            "session": session,
            "claimed_ms": self.clock.now_ms(),
        }
        return self.world.change(unit, Move(to="dispatched", fields=fields), actor="leader")

    def apply(self, changes: list[Change], *, together: bool) -> list[str]:
        results = self.run(self.world.store.apply(changes, together=together))
        return [result.outcome for result in results]

    # units --------------------------------------------------------------------------------------------

    @initialize(which=st.integers(0, 5))
    def begin_assigned(self, which: int) -> None:
        """Start with units that are assigned, and with some that wait."""
        self.place(4)
        self.assign(0, 2, which, None, 0, False, True)
        for n in range(1, MARKS_KEPT + 1):
            self.claim_marked(1, n, QUEUES, False)

    @rule(n=st.integers(1, 4))
    def place(self, n: int) -> None:
        parent = self.world.new(kind="node", queue=PLACE_QUEUE)
        units = [
            self.world.new(kind="node", queue=PLACE_QUEUE, parent=parent.job.id, unit=f"node/{at}") for at in range(n)
        ]
        assert all(made.created for made in self.insert(parent, *units))
        now_ms = self.clock.now_ms()
        self.jobs[parent.job.id] = Known(PLACE_QUEUE, False, now_ms, now_ms, "pending", story=["pending"])
        for unit in units:
            self.units[unit.job.id] = Known(PLACE_QUEUE, False, now_ms, now_ms, "pending", story=["pending"])

    @rule(
        n=st.integers(0, 99),
        most=st.integers(2, 3),
        which=st.integers(0, 5),
        wrong=st.sampled_from([None, None, "no_session", "conflict", "invalid", "stale"]),
        at=st.integers(0, 3),
        ends=st.booleans(),
        together=st.booleans(),
    )
    def assign(self, n: int, most: int, which: int, wrong: Wrong | None, at: int, ends: bool, together: bool) -> None:
        """A leader assigns units, and a job may end with them. One of the changes may be wrong."""
        sessions = [*sorted(self.beats), STANDING]
        if len(self.pick_units(n, most, "pending")) < most:
            self.place(most)
        units = self.pick_units(n, most, "pending")
        spoiled = units.pop() if wrong in ("no_session", "conflict", "invalid") and units else None
        given = {unit_id: sessions[(which + place) % len(sessions)] for place, unit_id in enumerate(units)}
        changes = [self.assignment(unit_id, session) for unit_id, session in given.items()]
        job_id = self.pick(n, *HELD) if ends else None
        if job_id is not None:
            changes.append(self.world.change(self.row(job_id), "succeeded", holder=self.jobs[job_id].holder))
        bad = self.bad_change(wrong, spoiled, n)
        place = at % (len(changes) + 1)
        if bad is not None:
            changes.insert(place, bad)

        outcomes = self.apply(changes, together=together)

        if bad is not None:
            assert outcomes.pop(place) == wrong
            changes.pop(place)
        if bad is not None and together:
            assert outcomes == ["withheld"] * len(changes)
            return
        assert outcomes == ["applied"] * len(changes)
        if changes:
            self.gangs.append(changes)
        for unit_id, session in given.items():
            self.units[unit_id].go("dispatched")
            self.units[unit_id].token += 1
            self.units[unit_id].holder = session
        if job_id is not None:
            self.moved(job_id, "succeeded")

    def bad_change(self, wrong: Wrong | None, unit_id: str | None, n: int) -> Change | None:
        """A change with this outcome, if there is a row for it."""
        if wrong == "stale":
            return self.ghost_change(n)
        if wrong is None or unit_id is None:
            return None
        if wrong == "no_session":
            return self.assignment(unit_id, "never.opened")
        if wrong == "invalid":
            return self.world.change(self.row(unit_id), "succeeded")
        change = self.assignment(unit_id, STANDING)
        self.write(self.row(unit_id), "cancelled")
        self.units[unit_id].go("cancelled")
        return change

    def ghost_change(self, n: int) -> Change | None:
        """The completion of a claim that was lost, and that did not end so."""
        lost = [
            row
            for row in self.old_rows
            if (self.jobs[row.id].token, self.jobs[row.id].holder) != (row.token, row.session)
            and self.jobs[row.id].status != "succeeded"
        ]
        return self.world.change(ghost := lost[n % len(lost)], "succeeded", holder=ghost.session) if lost else None

    @precondition(lambda self: self.gangs)
    @rule(n=st.integers(0, 99))
    def send_gang_again(self, n: int) -> None:
        gang = self.gangs[-1 - n % len(self.gangs)]
        assert self.apply(gang, together=True) == ["already_applied"] * len(gang)

    @rule(n=st.integers(0, 99), most=st.integers(1, 2))
    def confirm(self, n: int, most: int) -> None:
        for unit_id in self.pick_units(n, most, "dispatched"):
            known = self.units[unit_id]
            begun = Move(to="running", fields={"started_ms": self.clock.now_ms(), "starts": known.starts + 1})
            self.write(self.row(unit_id), begun, holder=known.holder)
            known.go("running")
            known.starts += 1
            known.started = True

    @rule(n=st.integers(0, 99), to=st.sampled_from(["succeeded", "pending"]))
    def end_unit(self, n: int, to: str) -> None:
        """Its holder completes it, or gives it back."""
        for unit_id in self.pick_units(n, 1, "running" if to == "succeeded" else "dispatched"):
            known = self.units[unit_id]
            known.releases += to == "pending"
            self.write(self.row(unit_id), Move(to=to, fields={"releases": known.releases}), holder=known.holder)
            known.go(to)

    # calls sent again ---------------------------------------------------------------------------------

    @rule(n=st.integers(0, 99))
    def insert_again(self, n: int) -> None:
        news, made = self.inserted[-1 - n % len(self.inserted)]
        assert self.run(self.world.store.insert(news)) == made

    @rule(which=st.integers(0, 3), n=st.integers(1, 3), queues=st.sampled_from([QUEUES, ("a",)]), again=st.booleans())
    def claim_marked(self, which: int, n: int, queues: tuple[str, ...], again: bool) -> None:
        session = min(self.beats) if which == 0 else STANDING
        known = self.marks.setdefault(session, {})
        if not (known and again):
            mark = f"m{len(self.marked)}"
            self.marked.append(mark)
            known[mark] = [(job.id, job.token) for job in self.take(session, n, queues, mark)]
            self.marks[session] = dict(list(known.items())[-MARKS_KEPT:])
            return
        mark = list(known)[n % len(known)]
        claimed = self.run(self.world.store.claim(queues, session, n, mark=mark))
        held = [
            job_id
            for job_id, token in known[mark]
            if (self.jobs[job_id].holder, self.jobs[job_id].token) == (session, token)
        ]
        assert [job.id for job in claimed] == held
