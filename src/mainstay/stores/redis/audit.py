"""The check of a Redis store: the rows as they are stored, and the indexes.

Rows and entries are checked a few at a time, each group in one script (`lua/audit.lua`), so that the check is correct
beside running workers and blocks none. Only this module walks over all keys of the namespace: a row that no index lists
can be found in no other way.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from ...lifecycle import JOB, UNIT, Event
from ...model import Job
from ..bounds import LONGEST_LEAD_MS
from ..open_claim import claim_event
from ..port import Audited, Violation
from ..violations import bad_lead, stray_refusal
from . import waits
from .base import RedisBase
from .rows import (
    RawRow,
    beside_bytes,
    event_bytes,
    fixed_bytes,
    is_open,
    readable_event,
    readable_job,
)
from .scripts import blob
from .transaction import RedisTx, transact
from .wire import RedisWire

#: rows or entries of one step: the server is blocked for as long
_STEP = 200
_PAGE = 2000
_RECOUNTS = 4
#: the pause between two steps of a quick check: leaves most of the time to others
_REST_S = 0.05
#: ready rows of a queue that are searched for one of a blocked key
_MOST_READY = 1000

#: sorted sets, then sets, that list jobs: the beginnings of their names, or whole names
_SORTED = (
    "status:",
    "ready:",
    "boosted:",
    "since:",
    "due:",
    "blocked:",
    "routed:",
    "units:",
    "tag:",
    "group:",
    "key:",
    "aside",
    "expires",
    "keep",
    "long",
)
_SETS = ("held:", "stopping:", "assigned:", "slots:", "open:")
#: the beginnings of a job's own keys, before its id
_OWN = (b"r:", b"f:", b"x:", b"e:")
_REFUSALS = b"refusals:"


async def audit(base: RedisBase, after: str, limit: int) -> list[Audited]:
    low = f"({after}" if after else "-"
    ids = [
        each.decode(errors="replace") for each in await base.call("ZRANGE", "all", low, "+", "BYLEX", "LIMIT", 0, limit)
    ]
    audited: list[Audited] = []
    for part in _parts(ids, 50):
        audited += await _audited(base, part)
    return audited


async def _audited(base: RedisBase, ids: Sequence[str]) -> list[Audited]:
    """Rows with their events, read in one script."""
    histories = await base.scripts.run("queries", ["histories", list(ids)])
    audited = []
    for job_id, (*parts, stored) in zip(ids, histories, strict=True):
        if parts[0] is None:
            continue  # `check` reports it
        raw = RawRow(*parts)
        job, damaged = readable_job(job_id, raw, base.chain)
        events = [readable_event(job_id, each) for each in stored]
        if is_open(raw):
            events.append(claim_event(job))
        kept = [event for event in events if event.seq > job.trimmed_seq]
        audited.append(Audited(job=job, events=kept, damaged=damaged, key=raw))
    return audited


async def mend(base: RedisBase, found: Audited, after: Job, events: Sequence[Event]) -> bool:
    """Write a whole repaired row. Index entries of the damaged row are found by the next check."""

    async def decide(tx: RedisTx) -> bool:
        if await tx.stored(after.id) != found.key or not await _has_room(tx, after, events):
            return False
        tx.call("ZREM", "aside", after.id)
        tx.call("SET", f"f:{after.id}", fixed_bytes(after))
        if (beside := beside_bytes(after)) is None:
            tx.call("DEL", f"x:{after.id}")
        else:
            tx.call("SET", f"x:{after.id}", beside)
        tx.put(found.job, after, events, observed=False)
        if after.concurrency_key is not None:
            tx.free(after.concurrency_key)
        await waits.settle(tx, [after])
        return True

    written, _ = await transact(base, decide)
    return written


async def _has_room(tx: RedisTx, after: Job, events: Sequence[Event]) -> bool:
    """Whether nothing conflicts with a repaired row: another holder of its unique key, other events."""
    if after.unique_key is not None and after.settled_ms is None:
        holder = await tx.ask("HGET", "unique", after.unique_key)
        if holder not in (None, after.id.encode()):
            return False
    last = await tx.ask("LINDEX", f"e:{after.id}", -1)
    return not (last and events) or readable_event(after.id, last).seq < events[0].seq


async def fast_findings(base: RedisBase) -> tuple[str, ...]:
    """A quick look at open: findings from the indexes alone."""
    counts, aside, strange = await base.scripts.run("audit", ["glance", False])
    known = {*JOB.states, *UNIT.states}
    by_status: Counter[str] = Counter()
    for field, n in zip(counts[::2], counts[1::2], strict=True):
        by_status[field.decode(errors="replace").rpartition("\0")[2]] += int(n)
    findings = [
        f"{n} jobs are {status!r}, a status this version does not know"
        for status, n in sorted(by_status.items())
        if n and status not in known
    ]
    if aside:
        findings.append(f"{aside} jobs could not be read and were set aside")
    if strange:
        findings.append(f"{strange} jobs are held by unknown sessions; the next sweep releases them")
    return tuple(findings)


async def check(base: RedisBase, *, repair: bool, quick: bool = False) -> list[Violation]:
    """Check everything, in an order in which repairs build on each other. The quick check skips rows that no index
    lists, and extra entries, and pauses between its steps."""
    rest_s = _REST_S if quick else 0.0
    run = _CheckRun(base, repair, rest_s)
    await run.check_rows()
    if not quick:
        await run.check_keys()
    await run.check_promises()
    await run.check_tallies()
    await run.check_blocked()
    await run.check_leads()
    return [*run.violations, *await waits.check(base, repair=repair, rest_s=rest_s)]


class _CheckRun:
    """One run of the check."""

    def __init__(self, base: RedisBase, repair: bool, rest_s: float) -> None:
        self._base = base
        self._repair = repair
        self._rest_s = rest_s
        self._unlisted_rows = False
        self.violations: list[Violation] = []

    async def check_rows(self) -> None:
        """Every listed row, and every entry of a missing row."""
        async for ids in self._all():
            for part in _parts(ids, _STEP):
                await self._rows(part)
                if len(part) == _STEP:
                    await asyncio.sleep(self._rest_s)

    async def check_keys(self) -> None:
        """All keys: jobs that no index lists, and the entries of every index."""
        prefix = self._base.server.address.tag.encode()
        lists: list[bytes] = []
        async for keys in self._scan(b"SCAN", None, "MATCH", prefix + b"*"):
            names = [key[len(prefix) :] for key in keys]
            ids = {name[2:] for name in names if name[:2] in _OWN}
            await self._unlisted(ids)
            refused = [name[len(_REFUSALS) :] for name in names if name.startswith(_REFUSALS)]
            for part in _parts(refused, _STEP):
                self._report(await self._do("refusals", [blob(each) for each in part]))
            lists += [name for name in names if _is_list(name)]
        await self._lists(sorted(set(lists)))

    async def check_promises(self) -> None:
        """Unique keys and idempotency keys."""
        async for fields in self._scan(b"HSCAN", "unique"):
            held = [[blob(key), blob(job_id)] for key, job_id in zip(fields[::2], fields[1::2], strict=True)]
            for part in _parts(held, _STEP):
                self._report(await self._do("unique", part))
        async for fields in self._scan(b"HSCAN", "keys"):
            await self._keys(fields[::2])
        async for fields in self._scan(b"ZSCAN", "keysuntil"):
            await self._keys(fields[::2])

    async def check_tallies(self) -> None:
        """The counts. A store of one page is counted in one script. A bigger one changes during the count: a tally is
        wrong if it differs by the same amount every time."""
        if self._unlisted_rows and not self._repair:
            return  # the tallies include rows that no index lists
        wrong, pages = await self._differences()
        for _ in range(_RECOUNTS if wrong and pages > 1 else 0):
            again, _ = await self._differences()
            wrong = {field: n for field, n in wrong.items() if again.get(field, (0,))[0] == n[0]}
        if not wrong:
            return
        if self._repair:
            await self._do("tally", [[blob(field), n] for field, (n, _, _) in wrong.items()])
        for field, (_, tally, true) in sorted(wrong.items()):
            queue, _, status = _text(field).rpartition("\0")
            message = f"queue {queue!r} counts {tally} {status} jobs but has {true}"
            done = "recounted" if self._repair else None
            self.violations.append(Violation(code="tally_wrong", message=message, repaired=done))

    async def check_leads(self) -> None:
        [leads] = await self._do("leads", LONGEST_LEAD_MS)
        for _, name, holder, until_ms in leads:
            self.violations.append(bad_lead(_text(name), _text(holder), _text(until_ms), repaired=self._repair))

    async def check_blocked(self) -> None:
        for _, key, queue, n in (await self._do("stranded", _MOST_READY))[0]:
            message = (
                f"{n} jobs of queue {_text(queue)!r} wait for the concurrency key {_text(key)!r}, which has a free slot"
            )
            done = "the best of them is ready again" if self._repair else None
            self.violations.append(Violation(code="key_stranded", message=message, repaired=done))

    # -- steps ------------------------------------------------------------------------------------

    async def _rows(self, ids: Iterable[bytes]) -> None:
        [findings] = await self._do("rows", [blob(each) for each in ids])
        strays = [finding for finding in findings if finding[0] == b"stray"]
        self._report([[finding for finding in findings if finding[0] != b"stray"]])
        for _, job_id, n, last in strays:
            await self._bury(job_id, n, last)

    async def _bury(self, job_id: bytes, n: int, last: bytes) -> None:
        """Events of a missing job that was not deleted: kept, and closed with a tombstone."""
        name, done = _text(job_id), None
        if self._repair:
            event = readable_event(name, last)
            why = "the job's row was gone"
            now_ms = self._base.clock.now_ms()
            body = (name, event.seq + 1, now_ms, event.to, event.to, "check", why, event.token, "tombstone", None)
            stone = Event(*body, self._base.chain.digest(event.digest, body))
            [buried] = await self._do("bury", blob(job_id), blob(last), blob(event_bytes(stone)))
            if not buried:
                return
            done = "the events were kept and closed with a tombstone"
        message = f"there are {n} events but no such job"
        self.violations.append(Violation(code="stray_events", job_id=name, message=message, repaired=done))

    async def _unlisted(self, ids: Iterable[bytes]) -> None:
        wanted = list(ids)
        if not wanted:
            return
        listed = await self._base.call("ZMSCORE", "all", *wanted)
        missing = [each for each, score in zip(wanted, listed, strict=True) if score is None]
        if missing:
            gone = await self._base.call("ZMSCORE", "gone", *missing)
            unknown = [each for each, score in zip(missing, gone, strict=True) if score is None]
            if unknown:
                before = len(self.violations)
                await self._rows(unknown)
                self._unlisted_rows = self._unlisted_rows or len(self.violations) > before

    async def _lists(self, names: Sequence[bytes]) -> None:
        """Many indexes in a step: most have one entry or a few."""
        at = 0
        while at < len(names):
            part = names[at : at + _STEP]
            findings, big, done = await self._do("lists", [[blob(name), _is_set(name)] for name in part], _STEP)
            self._report([findings])
            for position in big:
                await self._entries(part[position - 1])
            at += done
            if self._rest_s:
                await asyncio.sleep(self._rest_s)

    async def _entries(self, name: bytes) -> None:
        is_set = _is_set(name)
        async for entries in self._scan(b"SSCAN" if is_set else b"ZSCAN", name):
            for part in _parts(entries if is_set else entries[::2], _STEP):
                self._report(await self._do("entries", blob(name), [blob(each) for each in part], is_set))

    async def _keys(self, fields: Sequence[bytes]) -> None:
        for part in _parts(fields, _STEP):
            [findings] = await self._do("keys", [blob(each) for each in part])
            for _, field, defect in findings:
                scope, _, name = _text(field).partition("\0")
                message = f"the idempotency key {name!r} of {scope} {_text(defect)}"
                done = "it was corrected" if self._repair else None
                if not any(violation.message == message for violation in self.violations):
                    self.violations.append(Violation(code="stray_key", message=message, repaired=done))

    async def _differences(self) -> tuple[dict[bytes, tuple[int, int, int]], int]:
        """Tallies that differ from the rows (the difference, and both numbers), and the number of pages."""
        counted: Counter[bytes] = Counter()
        after, pages = b"", 0
        while True:
            counts, unreadable, tallies, after = await self._do("count", blob(after), _PAGE)
            if unreadable:
                return {}, 1  # their status is unknown; after their repair the counts can be compared
            counted.update(dict(counts))
            pages += 1
            if not after:
                break
        tally = Counter({field: int(n) for field, n in zip(tallies[::2], tallies[1::2], strict=True)})
        wrong = {
            field: (counted[field] - tally[field], tally[field], counted[field])
            for field in {*counted, *tally}
            if counted[field] != tally[field]
        }
        return wrong, pages

    def _report(self, reply: Sequence[Any]) -> None:
        self.violations += [_violation(finding, self._repair) for finding in reply[0]]

    async def _do(self, what: str, *args: Any) -> list[Any]:
        return await self._base.scripts.run("audit", [what, self._repair, *args])

    async def _all(self) -> AsyncIterator[list[bytes]]:
        """All listed ids, page by page."""
        low: bytes = b"-"
        while True:
            page: list[bytes] = await self._base.call("ZRANGE", "all", low, "+", "BYLEX", "LIMIT", 0, _PAGE)
            yield page
            if len(page) < _PAGE:
                return
            low = b"(" + page[-1]

    async def _scan(self, command: bytes, name: bytes | str | None, *more: Any) -> AsyncIterator[list[bytes]]:
        """The pages of SCAN and its variants: everything that exists during the whole scan, some of it twice."""
        cursor: int | bytes = 0
        tag = self._base.server.address.tag.encode()
        key = [] if name is None else [tag + (name if isinstance(name, bytes) else name.encode())]
        while True:

            async def work(wire: RedisWire, cursor: int | bytes = cursor) -> Any:
                return await wire.ask(command, *key, cursor, *more, "COUNT", 1000)

            cursor, page = await self._base.server.call(work)
            yield page
            if not int(cursor):
                return


def _violation(finding: Sequence[Any], repair: bool) -> Violation:
    kind, job_id, *rest = finding
    name = _text(job_id)
    if kind == b"missing":
        message = f"the index {_text(rest[0])} does not list it"
        done = "it was listed again"
    elif kind == b"extra":
        why = "does not belong there" if rest[1] else "does not exist"
        message = f"the index {_text(rest[0])} lists it, and it {why}"
        done = "it was removed from the index"
    elif kind == b"refusal":
        return stray_refusal(name, repaired=repair)
    elif kind == b"rowless":
        message = "it is listed, and has neither a row nor an event"
        done = "its remains were removed"
    else:
        message = f"job {_text(rest[1])} holds the unique key {_text(rest[0])!r} as well; cancel one of them"
        return Violation(code="duplicate_unique", job_id=name, message=message)
    return Violation(code="index_damaged", job_id=name, message=message, repaired=done if repair else None)


def _is_set(name: bytes) -> bool:
    return name.startswith(tuple(each.encode() for each in _SETS))


def _is_list(name: bytes) -> bool:
    text = name.decode(errors="replace")
    return any(text.startswith(each) if each.endswith(":") else text == each for each in (*_SORTED, *_SETS))


def _parts(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
