"""Sessions, leadership, queue settings, limits and schedules: calls of the script `directory`.

A supervisor declares its own engines dead at once. A killed worker is detected by its subscriptions (`liveness.py`), a
machine that vanished when the leases of its sessions expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...model import Leadership, QueueSettings, Schedule, Session
from ..audit_key import admit_fingerprint
from ..bounds import TICKS_KEPT_MS
from ..compatibility import refuse_newer
from ..port import ClaimReport, InsertResult, NewJob, Overdue, Pulse
from ..records import MORE, SCHEDULES, SESSIONS
from ..routes import offer_from, offer_text
from ..server_clock import ServerClock
from ..session_names import admit_session
from .base import RedisBase
from .changes import report_arg
from .rows import RawRow, readable_job
from .scripts import blob
from .transaction import RedisTx, deposed, fence, transact

#: version of the keys and rows, as `lua/prelude.lua` lays them out
VERSION = 1
#: the oldest version of programs that can use this layout: raised when a key or a field that they use is removed or
#: changes its meaning, and then not above VERSION - 1
COMPATIBLE_FROM = 1
#: the fields of a session that are read, beside its id
_SESSION_FIELDS = (*SESSIONS.columns[1:], "own_lease_s", "offer")
#: the stored lease of a standing session: no program of any version finds it silent
_NO_LEASE_S = 10**10
_decode_queue = msgspec.json.Decoder(dict[str, Any]).decode


async def admit_namespace(base: RedisBase) -> None:
    """Mark a new namespace; refuse one with a layout that is too new, or with another audit key."""
    # a script, because a full server refuses plain writes, and its jobs must stay accessible
    version, audit, compatible = await _do(base, "admit", VERSION, base.chain.fingerprint, COMPATIBLE_FROM)
    address = base.server.address
    place = f"{address.shown} (prefix {address.prefix})"
    refuse_newer(place, version=int(version), compatible=int(compatible), known=VERSION)
    admit_fingerprint(audit.decode(), base.chain.fingerprint, address.shown)


# -- sessions and leadership ----------------------------------------------------------------------


async def open_session(base: RedisBase, session: Session) -> None:
    admit_session(session.id)
    named = dict(zip(SESSIONS.columns, SESSIONS.values(msgspec.structs.replace(session, dead=False)), strict=True))
    del named["id"]
    more = named.pop(MORE)
    if session.standing:
        named |= {"lease_s": _NO_LEASE_S, "own_lease_s": session.lease_s}
    fields = [part for name, value in named.items() if value not in (None, "") for part in (name, _text(value))]
    offer = session.offer
    tasks = [] if offer is None else list(offer.tasks)
    await _do(base, "open", session.id, fields, more or False, offer_text(offer) or False, tasks)
    base.offers.opened(session)


async def link(base: RedisBase, sessions: Sequence[str]) -> None:
    """This process has subscribed for these sessions."""
    await _do(base, "link", list(sessions))


async def beat(base: RedisBase, sessions: Sequence[str], reports: Sequence[ClaimReport]) -> list[Pulse]:
    """Keep sessions alive, and record their reports, in one call."""
    replies = await base.scripts.run("beat", [list(sessions), [report_arg(item) for item in reports]])
    # a reply ends before a trailing nil: it lacks unknown sessions at the end
    replies += [None] * (len(sessions) - len(replies))
    return [_pulse(session, reply) for session, reply in zip(sessions, replies, strict=True)]


async def drain(base: RedisBase, sessions: Sequence[str], by: str) -> list[bool]:
    return [bool(alive) for alive in await _do(base, "drain", list(sessions), by)]


async def close_session(base: RedisBase, session: str, held: Leadership | None) -> None:
    outcome, *current = await _do(base, "close", session, fence(held))
    if outcome == b"deposed":
        raise deposed(held, current)
    base.offers.closed(session)


async def sessions(base: RedisBase) -> list[Session]:
    stored = [_session(fields) for fields in await _do(base, "sessions", list(_SESSION_FIELDS))]
    return sorted(stored, key=lambda session: (session.started_ms, session.id))


async def overdue(base: RedisBase, limit: int) -> tuple[list[Overdue], bool]:
    """Declare dead sessions dead, then list their jobs and the jobs that are past their time. The second result: a
    session has no subscriber, so it may be declared dead in a moment."""
    jobs = []
    suspected = False
    sent_ms = base.clock.now_ms() if isinstance(base.clock, ServerClock) else False
    for cause, job_id, *parts in await _do(base, "overdue", limit, sent_ms):
        if cause == b"suspected":
            suspected = True
            continue
        row, fixed, beside = (*parts, None, None, None)[:3]
        if row is not None:  # the check reports an entry without a row
            job, _ = readable_job(job_id.decode(), RawRow(row, fixed, beside), base.chain)
            jobs.append(Overdue(job, "session" if cause == b"session" else "time"))
    return jobs, suspected


async def lead(base: RedisBase, name: str, session: str, ttl_s: float) -> Leadership:
    holder, epoch, until_ms = await _do(base, "lead", name, session, int(ttl_s * 1000))
    return Leadership(name=name, holder=holder.decode(), epoch=int(epoch), until_ms=int(until_ms))


async def resign(base: RedisBase, held: Leadership) -> None:
    await _do(base, "resign", held.name, held.holder, held.epoch)


# -- settings -------------------------------------------------------------------------------------


async def set_queue(base: RedisBase, settings: QueueSettings) -> None:
    fields = msgspec.structs.asdict(settings)
    del fields["name"]
    await _do(base, "set_queue", settings.name, settings.paused, blob(msgspec.json.encode(fields)))


async def queues(base: RedisBase) -> list[QueueSettings]:
    stored = {name.decode(): _decode_queue(text) for name, text in (await _hash(base, "queues")).items()}
    return [msgspec.convert({**stored[name], "name": name}, QueueSettings) for name in sorted(stored)]


async def set_limit(base: RedisBase, key: str, most: int | None) -> None:
    await _do(base, "set_limit", key, False if most is None else most)


async def limits(base: RedisBase) -> dict[str, int]:
    return {name.decode(): int(most) for name, most in sorted((await _hash(base, "limits")).items())}


async def put_schedule(base: RedisBase, schedule: Schedule) -> None:
    last = False if schedule.last_tick_ms is None else schedule.last_tick_ms
    await _do(base, "put_schedule", schedule.name, blob(schedule.spec), schedule.paused, last)


async def pause_schedule(base: RedisBase, name: str, *, paused: bool) -> bool:
    [existed] = await _do(base, "pause_schedule", name, paused)
    return bool(existed)


async def schedules(base: RedisBase) -> list[Schedule]:
    stored = [_schedule(fields) for fields in await _do(base, "schedules")]
    return sorted(stored, key=lambda schedule: schedule.name)


async def drop_schedule(base: RedisBase, name: str) -> bool:
    [existed] = await _do(base, "drop_schedule", name)
    return bool(existed)


async def tick(
    base: RedisBase, name: str, at_ms: int, jobs: Sequence[NewJob], held: Leadership | None
) -> list[InsertResult] | None:
    """Insert the jobs of a tick and record the tick, once."""
    if jobs:
        # A full server accepts a commit, so that no end of a job is lost. A tick is made again later, so it is refused
        # like any other new jobs: a full server refuses an insert, even of no jobs.
        await base.scripts.run("insert", [[], False])

    async def decide(tx: RedisTx) -> bool:
        last_text = await tx.ask("HGET", f"schedule:{name}", "last")
        last = int(last_text) if last_text else None
        # older ticks may have been trimmed: then the last recorded one decides
        if last is not None and at_ms < last - TICKS_KEPT_MS:
            return False
        if await tx.ask("ZSCORE", f"ticked:{name}", at_ms) is not None:
            return False
        tx.call("ZADD", f"ticked:{name}", at_ms, at_ms)
        if last_text is not None and (last is None or at_ms > last):
            tx.call("HSET", f"schedule:{name}", "last", at_ms)
        tx.insert(jobs)
        return True

    ticked, results = await transact(base, decide, lead=held)
    return results if ticked else None


# -- replies --------------------------------------------------------------------------------------


async def _do(base: RedisBase, what: str, *args: Any) -> list[Any]:
    return await base.scripts.run("directory", [what, *args])


async def _hash(base: RedisBase, name: str) -> dict[bytes, bytes]:
    fields = await base.call("HGETALL", name)
    return dict(zip(fields[::2], fields[1::2], strict=True))


def _pulse(session: str, reply: list[Any] | None) -> Pulse:
    if reply is None:
        return Pulse(session=session, known=False)
    stopping, assigned, by = (*reply, None)[:3]  # a reply ends before a trailing nil
    return Pulse(
        session=session,
        known=True,
        cancelling=tuple(sorted(each.decode() for each in stopping)),
        assigned=tuple(sorted(each.decode() for each in assigned)),
        draining_by=None if by is None else by.decode(),
    )


def _session(fields: Sequence[bytes | None]) -> Session:
    # a reply ends before a trailing nil
    texts = [None if field is None else field.decode() for field in fields]
    texts += [None] * (1 + len(_SESSION_FIELDS) - len(texts))
    apart: dict[str, Any] = {"offer": offer_from(texts.pop())}
    if lease_s := texts.pop():
        texts[SESSIONS.columns.index("lease_s")] = lease_s
    if not texts[SESSIONS.columns.index("dead")]:
        apart["dead"] = True  # its hash was removed
    return SESSIONS.read(texts, apart)


def _schedule(fields: Sequence[bytes | None]) -> Schedule:
    name, spec, paused, last = (field or b"" for field in fields)
    return SCHEDULES.read([name.decode(), spec, paused == b"1", int(last) if last else None])


def _text(value: Any) -> str:
    """A value of a field of a hash; booleans are 0 or 1."""
    return str(int(value)) if isinstance(value, bool) else str(value)
