"""Check and repair: every invariant of every row, and the engine's own check, on any store.

Layer: control. Start from `check`. The invariants are in `mainstay.lifecycle.invariants`, the repair of a row in
`repairs`, the walk over a store here.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from functools import partial

import msgspec

from ...errors import InvalidInput, RowDamaged, StoreError
from ...lifecycle import UNIT, Chain, table_of
from ...lifecycle.invariants import Finding, inspect
from ...model import Job, Session
from ...stores import Audited, JobStore, Query, Violation
from ..schedules.spec import read_spec
from .repairs import Look, mended

PAGE = 200
#: rows that the leader checks each time
WATCHED_ROWS = 5_000
#: A repair may uncover other damage; more rounds than this mean that rows are damaged while we repair.
ROUNDS = 6
#: How long past its lease a session may be silent before its rows count as violations, not as work of the next sweep.
SWEEP_SLACK_MS = 60_000

Progress = Callable[[int, int], None]

#: errors of reading a damaged row; a damaged file raises a `StoreError`
_UNREADABLE = (RowDamaged, ValueError, TypeError, msgspec.MsgspecError)

_log = logging.getLogger(__name__)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check."""

    store: str
    checked: int
    """number of rows"""
    seconds: float
    violations: tuple[Violation, ...] = ()
    """with `repaired` set if it was repaired"""
    notices: tuple[Violation, ...] = ()
    """worth knowing, but nothing is wrong"""

    @property
    def remaining(self) -> tuple[Violation, ...]:
        """The violations that were not repaired."""
        return tuple(found for found in self.violations if found.repaired is None)

    @property
    def clean(self) -> bool:
        return not self.remaining


async def check(
    store: JobStore,
    *,
    chain: Chain | None = None,
    repair: bool = False,
    actor: str = "check",
    progress: Progress | None = None,
) -> Report:
    """Check every row of a store; with `repair`, repair what can be repaired and check again until it is clean.

    Safe beside running workers: it reads short pages, and repairs with compare-and-swap. Raises `StoreDamaged` if the
    file itself is damaged. `progress` is called with the checked rows and all rows.

    >>> import asyncio
    >>> from mainstay.stores import open_store
    >>> async def main():
    ...     store = await open_store("memory:")
    ...     return (await check(store)).clean
    >>> asyncio.run(main())
    True
    """
    run = _Run(store, chain or store.chain, actor, progress)
    began = store.clock.lease_ms()
    violations = await run.until_mended() if repair else await run.once(repair=False)
    return run.report(violations, began)


def watching(store: JobStore, *, rows: int = WATCHED_ROWS) -> Callable[[object], Awaitable[Report]]:
    """The check as a duty of the leader: `control.duties(session, check=watching(store))`. Findings are logged.

    Each call checks the next `rows` rows, so its cost does not grow with the store; the engine's own check comes at the
    beginning of every round.
    """
    run = _Run(store, store.chain, "check", None)
    place = ""

    async def watch(_lead: object) -> Report:
        nonlocal place
        began = store.clock.lease_ms()
        run.begin()
        violations = []
        if not place:
            violations += await run.engine(repair=False, quick=True)
            violations += await run.schedules(repair=False)
        async for page in run.pages(after=place):
            violations += await run.page(page, repair=False)
            place = page[-1].job.id
            if run.checked >= rows:
                break
        else:
            place = ""
        for found in violations:
            _log.error("job_id=%s broken=%s %s; run: mainstay check --repair", found.job_id, found.code, found.message)
        return run.report(violations, began)

    return watch


class _Run:
    """One check: a pass over everything, or several while it repairs."""

    def __init__(self, store: JobStore, chain: Chain, actor: str, progress: Progress | None) -> None:
        self._store = store
        self._chain = chain
        self._actor = actor
        self._progress = progress
        self._mended: dict[str, frozenset[str]] = {}
        """job -> codes that were repaired in an earlier round"""
        self.checked = 0
        self.notices: list[Violation] = []

    async def until_mended(self) -> list[Violation]:
        reported: dict[tuple[str | None, str, str], Violation] = {}
        for _ in range(ROUNDS):
            remaining = await self.once(repair=True)
            reported.update({_identity(each): each for each in remaining})
            if not any(each.repaired for each in remaining):
                break
        else:
            remaining = await self.once(repair=False)
        reported.update({_identity(each): each for each in remaining})
        left = {_identity(each) for each in remaining}
        return [each if name in left else _mended(each) for name, each in reported.items()]

    async def once(self, *, repair: bool) -> list[Violation]:
        self.begin()
        violations = await self.engine(repair=repair)
        violations += await self.schedules(repair=repair)
        total = await self._total()
        async for page in self.pages():
            violations += await self.page(page, repair=repair)
            if self._progress is not None:
                self._progress(self.checked, max(total, self.checked))
        return violations

    def begin(self) -> None:
        self.checked = 0
        self.notices = []

    async def engine(self, *, repair: bool, quick: bool = False) -> list[Violation]:
        return await self._store.check(repair=repair, quick=quick)

    async def schedules(self, *, repair: bool) -> list[Violation]:
        """Unreadable schedules never tick. A repair pauses them and keeps them for an operator."""
        violations = []
        for row in await self._store.schedules():
            try:
                read_spec(row.spec)
            except InvalidInput as error:
                message = f"the schedule {row.name!r} cannot be read: {error.rule}"
            else:
                continue
            if row.paused:
                self.notices.append(Violation(code="bad_schedule", message=f"{message} (it is paused)"))
                continue
            if repair:
                await self._store.pause_schedule(row.name, paused=True)
            violations.append(
                Violation(code="bad_schedule", message=message, repaired="it was paused" if repair else None)
            )
        return violations

    def report(self, violations: list[Violation], began_ms: int) -> Report:
        return Report(
            store=self._store.url,
            checked=self.checked,
            seconds=(self._store.clock.lease_ms() - began_ms) / 1000,
            violations=tuple(violations),
            notices=tuple(self.notices),
        )

    async def _total(self) -> int:
        if self._progress is None:
            return 0
        stats = await self._store.stats()
        return sum(sum(queue.counts.values()) for queue in stats.queues.values())

    async def pages(self, after: str = "") -> AsyncIterator[list[Audited]]:
        while page := await self._store.audit(after=after, limit=PAGE):
            yield page
            if page[-1].job.id == after:
                return
            after = page[-1].job.id

    async def page(self, page: list[Audited], *, repair: bool) -> list[Violation]:
        self.checked += len(page)
        violations: list[Violation] = []
        # read after the rows: a session that claimed one of them must be in the list
        live, silent = _sorted_out(await self._store.sessions(), self._store.clock.lease_ms())
        parents = await self._parents(page)
        for found in page:
            look = partial(
                inspect,
                events=found.events,
                chain=self._chain,
                now_ms=self._store.clock.now_ms(),
                live_sessions=live,
                silent_sessions=silent,
                damaged=found.damaged,
                parent_exists=found.job.parent is None or found.job.parent in parents,
                open_units=await self._has_open_units(found.job, live),
            )
            findings = look(found.job)
            if not findings or await self._moved_on(found):
                continue
            self.notices += [_violation(each, found, None) for each in findings if each.notice]
            wrong = [each for each in findings if not each.notice]
            done = await self._mend(found, look) if repair and wrong else {}
            violations += [_violation(each, found, done.get(each.code)) for each in wrong]
        return violations

    async def _parents(self, page: list[Audited]) -> set[str]:
        """The parents of the page that exist, readable or not."""
        wanted = sorted({found.job.parent for found in page if found.job.parent is not None})
        try:
            return {job.id for job in await self._store.get(wanted) if job is not None} if wanted else set()
        except _UNREADABLE:
            return {job_id for job_id in wanted if await self._exists(job_id)}

    async def _exists(self, job_id: str) -> bool:
        try:
            return (await self._store.get([job_id]))[0] is not None
        except _UNREADABLE:
            return True

    async def _has_open_units(self, job: Job, live: Collection[str]) -> bool:
        """Read only for a row that should be held and is not."""
        state = table_of(job.parent).get(job.status)
        if state is None or not state.holds or job.session in live:
            return False
        unsettled = tuple(name for name, state in UNIT.states.items() if not state.settled)
        try:
            return bool((await self._store.find(Query(parent=job.id, status=unsettled), limit=1)).jobs)
        except _UNREADABLE:
            return True

    async def _moved_on(self, found: Audited) -> bool:
        """Whether the row has changed since its page was read: then the findings are out of date."""
        try:
            now = (await self._store.get([found.job.id]))[0]
        except _UNREADABLE:
            return False
        return now is not None and now.version != found.job.version

    async def _mend(self, found: Audited, look: Look) -> dict[str, str]:
        """What was done, by code; empty if the row has moved on or refuses the repair."""
        already = self._mended.setdefault(found.job.id, frozenset())
        everything = frozenset(each.code for each in look(found.job))
        # a row whose repair is refused (its unique key was taken since) can still be quarantined
        for stubborn in (already, everything):
            try:
                plan = mended(
                    found.job,
                    found.events,
                    look=look,
                    stubborn=stubborn,
                    chain=self._chain,
                    actor=self._actor,
                    now_ms=self._store.clock.now_ms(),
                )
                if plan is None:
                    return {}
                if not await self._store.mend(found, plan.job, plan.events):
                    if await self._moved_on(found):
                        return {}
                    continue
            except StoreError:
                raise
            except Exception:  # noqa: BLE001 - one row must not stop the repair of the others
                _log.warning("job %s could not be repaired as planned", found.job.id, exc_info=True)
                continue
            self._mended[found.job.id] = already | everything
            return dict(plan.done)
        return {}


def _sorted_out(sessions: list[Session], now_ms: int) -> tuple[set[str], set[str]]:
    """Live sessions, and sessions that became silent so recently that the next sweep handles them."""
    live, silent = set(), set()
    for session in sessions:
        late_ms = now_ms - session.beat_ms - session.lease_s * 1000
        if not session.dead and (session.standing or late_ms <= 0):
            live.add(session.id)
        elif late_ms <= SWEEP_SLACK_MS:
            silent.add(session.id)
    return live, silent


def _violation(finding: Finding, found: Audited, repaired: str | None) -> Violation:
    return Violation(code=finding.code, message=finding.message, job_id=found.job.id, repaired=repaired)


def _identity(found: Violation) -> tuple[str | None, str, str]:
    return found.job_id, found.code, found.message


def _mended(found: Violation) -> Violation:
    return found if found.repaired else msgspec.structs.replace(found, repaired="gone at the next check")


__all__ = ["Report", "check", "watching"]
