"""What the check needs from Redis: the rows as they are, and what only the keys can show.

Rows and entries are looked at a few at a time, each few at one moment (`lua/audit.lua`), so that the check is right
beside running workers and stops nobody. This is the one place that walks over all keys of the namespace: a row that no
index lists can be found no other way.
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

#: rows or entries of one step: the server does nothing else meanwhile
_STEP = 200
_PAGE = 2000
_RECOUNTS = 4
#: between two steps of a quick check: so most of the time is left to others
_REST_S = 0.05
#: ready rows of a queue among which one of a blocked key is looked for
_MOST_READY = 1000

#: how the names of sorted sets and sets begin (or what they are) that list jobs
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
_SETS = ("held:", "stopping:", "slots:", "open:")
#: a job's own keys, before its id
_OWN = (b"r:", b"f:", b"x:", b"e:")
_REFUSALS = b"refusals:"


async def audit(base: RedisBase, after: str, limit: int) -> list[Audited]:
    low = f"({after}" if after else "-"
    ids = [
        each.decode(errors="replace") for each in await base.call("ZRANGE", "all", low, "+", "BYLEX", "LIMIT", 0, limit)
    ]
    found: list[Audited] = []
    for part in _parts(ids, 50):
        found += await _audited(base, part)
    return found


async def _audited(base: RedisBase, ids: Sequence[str]) -> list[Audited]:
    """Rows with their events, of one moment."""
    answers = await base.scripts.run("queries", ["histories", list(ids)])
    found = []
    for job_id, (*parts, stored) in zip(ids, answers, strict=True):
        if parts[0] is None:
            continue  # told by `check`
        raw = RawRow(*parts)
        job, damaged = readable_job(job_id, raw, base.chain)
        events = [readable_event(job_id, each) for each in stored]
        if is_open(raw):
            events.append(claim_event(job))
        kept = [event for event in events if event.seq > job.trimmed_seq]
        found.append(Audited(job=job, events=kept, damaged=damaged, key=raw))
    return found


async def mend(base: RedisBase, found: Audited, after: Job, events: Sequence[Event]) -> bool:
    """Write a repaired row whole. What the indexes said of the damaged one, the next look at them tells."""

    async def decide(tx: RedisTx) -> bool:
        if await tx.stored(after.id) != found.key or not await _has_room(tx, after, events):
            return False
        tx.call("ZREM", "aside", after.id)
        tx.call("SET", f"f:{after.id}", fixed_bytes(after))
        if (beside := beside_bytes(after)) is None:
            tx.call("DEL", f"x:{after.id}")
        else:
            tx.call("SET", f"x:{after.id}", beside)
        tx.put(found.job, after, events, told=False)
        if after.concurrency_key is not None:
            tx.free(after.concurrency_key)
        await waits.settle(tx, [after])
        return True

    written, _ = await transact(base, decide)
    return written


async def _has_room(tx: RedisTx, after: Job, events: Sequence[Event]) -> bool:
    """Whether nothing else stands where a mended row would: another holder of its unique key, other events."""
    if after.unique_key is not None and after.settled_ms is None:
        holder = await tx.ask("HGET", "unique", after.unique_key)
        if holder not in (None, after.id.encode()):
            return False
    last = await tx.ask("LINDEX", f"e:{after.id}", -1)
    return not (last and events) or readable_event(after.id, last).seq < events[0].seq


async def fast_findings(base: RedisBase) -> tuple[str, ...]:
    """A glance at open: what the indexes alone can show."""
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
    """All the keys can show, in an order in which repairs build on each other. The quick one does not look for rows
    that no list knows of, nor for entries too many, and rests between its steps."""
    rest_s = _REST_S if quick else 0.0
    look = _Look(base, repair, rest_s)
    await look.at_rows()
    if not quick:
        await look.at_keys()
    await look.at_promises()
    await look.at_tallies()
    await look.at_blocked()
    await look.at_leads()
    return [*look.found, *await waits.check(base, repair=repair, rest_s=rest_s)]


class _Look:
    """One check."""

    def __init__(self, base: RedisBase, repair: bool, rest_s: float) -> None:
        self._base = base
        self._repair = repair
        self._rest_s = rest_s
        self._unlisted_rows = False
        self.found: list[Violation] = []

    async def at_rows(self) -> None:
        """Every row that is listed, and every listing of a row that is not there."""
        async for ids in self._all():
            for part in _parts(ids, _STEP):
                await self._rows(part)
                if len(part) == _STEP:
                    await asyncio.sleep(self._rest_s)

    async def at_keys(self) -> None:
        """All keys: jobs that no list knows of, and the entries of every list."""
        prefix = self._base.server.address.tag.encode()
        lists: list[bytes] = []
        async for keys in self._scan(b"SCAN", None, "MATCH", prefix + b"*"):
            names = [key[len(prefix) :] for key in keys]
            ids = {name[2:] for name in names if name[:2] in _OWN}
            await self._unlisted(ids)
            refused = [name[len(_REFUSALS) :] for name in names if name.startswith(_REFUSALS)]
            for part in _parts(refused, _STEP):
                self._say(await self._do("refusals", [blob(each) for each in part]))
            lists += [name for name in names if _is_list(name)]
        await self._lists(sorted(set(lists)))

    async def at_promises(self) -> None:
        """Unique keys and idempotency keys."""
        async for fields in self._scan(b"HSCAN", "unique"):
            held = [[blob(key), blob(job_id)] for key, job_id in zip(fields[::2], fields[1::2], strict=True)]
            for part in _parts(held, _STEP):
                self._say(await self._do("unique", part))
        async for fields in self._scan(b"HSCAN", "keys"):
            await self._keys(fields[::2])
        async for fields in self._scan(b"ZSCAN", "keysuntil"):
            await self._keys(fields[::2])

    async def at_tallies(self) -> None:
        """The counts. A store of one page is counted at one moment. Beside writers, a bigger one is off while it is
        counted: what is off by the same amount every time is wrong."""
        if self._unlisted_rows and not self._repair:
            return  # they are counted, and not among those that are listed
        off, pages = await self._off()
        for _ in range(_RECOUNTS if off and pages > 1 else 0):
            again, _ = await self._off()
            off = {field: n for field, n in off.items() if again.get(field, (0,))[0] == n[0]}
        if not off:
            return
        if self._repair:
            await self._do("tally", [[blob(field), n] for field, (n, _, _) in off.items()])
        for field, (_, told, true) in sorted(off.items()):
            queue, _, status = field.decode(errors="replace").rpartition("\0")
            message = f"queue {queue!r} counts {told} {status} jobs but has {true}"
            done = "recounted" if self._repair else None
            self.found.append(Violation(code="tally_wrong", message=message, repaired=done))

    async def at_leads(self) -> None:
        [found] = await self._do("leads", LONGEST_LEAD_MS)
        for _, name, holder, until_ms in found:
            self.found.append(bad_lead(_text(name), _text(holder), _text(until_ms), repaired=self._repair))

    async def at_blocked(self) -> None:
        for _, key, queue, n in (await self._do("stranded", _MOST_READY))[0]:
            name, line = _text(key), _text(queue)
            message = f"{n} jobs of queue {line!r} wait for the concurrency key {name!r}, which has a free slot"
            done = "the best of them is ready again" if self._repair else None
            self.found.append(Violation(code="key_stranded", message=message, repaired=done))

    # -- steps ------------------------------------------------------------------------------------

    async def _rows(self, ids: Iterable[bytes]) -> None:
        [found] = await self._do("rows", [blob(each) for each in ids])
        strays = [line for line in found if line[0] == b"stray"]
        self._say([[line for line in found if line[0] != b"stray"]])
        for _, job_id, n, last in strays:
            await self._bury(job_id, n, last)

    async def _bury(self, job_id: bytes, n: int, last: bytes) -> None:
        """Events of a job that is not there and was not deleted: kept, and closed with a tombstone."""
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
        self.found.append(Violation(code="stray_events", job_id=name, message=message, repaired=done))

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
                said = len(self.found)
                await self._rows(unknown)
                self._unlisted_rows = self._unlisted_rows or len(self.found) > said

    async def _lists(self, names: Sequence[bytes]) -> None:
        """Many lists a step: most have one entry or a few."""
        at = 0
        while at < len(names):
            part = names[at : at + _STEP]
            found, big, done = await self._do("lists", [[blob(name), _is_set(name)] for name in part], _STEP)
            self._say([found])
            for place in big:
                await self._entries(part[place - 1])
            at += done
            if self._rest_s:
                await asyncio.sleep(self._rest_s)

    async def _entries(self, name: bytes) -> None:
        is_set = _is_set(name)
        async for found in self._scan(b"SSCAN" if is_set else b"ZSCAN", name):
            for part in _parts(found if is_set else found[::2], _STEP):
                self._say(await self._do("entries", blob(name), [blob(each) for each in part], is_set))

    async def _keys(self, fields: Sequence[bytes]) -> None:
        for part in _parts(fields, _STEP):
            [found] = await self._do("keys", [blob(each) for each in part])
            for _, field, what in found:
                scope, _, name = _text(field).partition("\0")
                message = f"the idempotency key {name!r} of {scope} {_text(what)}"
                done = "it was set right" if self._repair else None
                if not any(told.message == message for told in self.found):
                    self.found.append(Violation(code="stray_key", message=message, repaired=done))

    async def _off(self) -> tuple[dict[bytes, tuple[int, int, int]], int]:
        """Tallies that are not what the rows come to (by how much, and both numbers), and in how many pages."""
        counted: Counter[bytes] = Counter()
        after, pages = b"", 0
        while True:
            counts, unreadable, tallies, after = await self._do("count", blob(after), _PAGE)
            if unreadable:
                return {}, 1  # they are counted somewhere; when they are mended, all can be compared
            counted.update(dict(counts))
            pages += 1
            if not after:
                break
        told = {field: int(n) for field, n in zip(tallies[::2], tallies[1::2], strict=True)}
        off = {
            field: (counted[field] - told.get(field, 0), told.get(field, 0), counted[field])
            for field in {*counted, *told}
            if counted[field] != told.get(field, 0)
        }
        return off, pages

    def _say(self, answer: Sequence[Any]) -> None:
        for line in answer[0]:
            self.found.append(_violation(line, self._repair))

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
        """What SCAN and its kin give: all that is there all the time, some of it twice."""
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


def _violation(line: Sequence[Any], repair: bool) -> Violation:
    kind, job_id, *rest = line
    name = _text(job_id)
    if kind == b"missing":
        message = f"the index {_text(rest[0])} does not list it"
        done = "it was listed again"
    elif kind == b"extra":
        why = "does not belong there" if rest[1] else "is not there"
        message = f"the index {_text(rest[0])} lists it, and it {why}"
        done = "it was taken off the list"
    elif kind == b"refusal":
        return stray_refusal(name, repaired=repair)
    elif kind == b"rowless":
        message = "it is listed, and there is neither a row nor an event of it"
        done = "what was left of it was removed"
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
