"""Submit: from requests to stored jobs. Everything is checked before anything is written."""

from __future__ import annotations

import hashlib
import logging
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..errors import Conflict, InvalidInput, UniqueClash
from ..lifecycle import Move, apply, submit, table_of, time_text
from ..model import AWAITS_MS, BLANK, IdSource, Job, Settings, rank_of
from ..stores import Change, Inserted, JobStore, Key, NewJob
from .failure import shown
from .options import OptionReader, Plan, check_name
from .payload import content_of, encoded

log = logging.getLogger("mainstay.control")

_KNOWN_NAMES = 4096
_INDEXED = re.compile(r"jobs\[(\d+)\](: |\.)")
_REPLACE_ROUNDS = 8


class Request(msgspec.Struct, frozen=True):
    """One job to submit. `options` are written as for `submit`, or read beforehand by `Control.plan`.

    >>> Request("mail.send", {"to": "a@b.c"}, {"queue": "mail"}).name
    'mail.send'
    """

    name: str
    payload: Any = None
    options: Mapping[str, Any] | Plan = {}
    content: bytes | None = None
    """what its idempotency key stands for, when the payload itself differs each time (it is sealed by a codec); None:
    the payload"""


class Submitted(msgspec.Struct, frozen=True):
    """The job that stands for a request; `created` is False when it was there before."""

    id: str
    created: bool


class Submitter:
    """Makes and inserts jobs."""

    def __init__(self, store: JobStore, settings: Settings, rng: random.Random, actor: str) -> None:
        self._store = store
        self._reader = OptionReader(settings)
        self._ids = IdSource(rng)
        self._actor = actor
        self._limit = settings.payload_limit
        self._boost_ms = round(settings.priority_boost_s * 1000)
        self._names: set[str] = set()

    def plan(self, options: Mapping[str, Any]) -> Plan:
        """Read options once, to submit many jobs with them."""
        return self._reader.read(options)

    async def submit(self, request: Request) -> Submitted:
        """Submit one job."""
        new, plan = self._prepare([request])[0]
        if plan.on_clash == "replace" and new.job.unique_key is not None:
            return await self._replace(new)
        made = (await self._insert([new]))[0]
        return Submitted(made.id, made.created)

    async def submit_many(self, requests: Iterable[Request]) -> list[Submitted]:
        """Submit all or none."""
        prepared = self._prepare(requests)
        for index, (new, plan) in enumerate(prepared):
            if plan.on_clash == "replace" and new.job.unique_key is not None:
                raise InvalidInput(f"requests[{index}].on_clash", "'replace' works for one job at a time; use submit")
        if not prepared:
            return []
        return [Submitted(made.id, made.created) for made in await self._insert([new for new, _ in prepared])]

    def new_jobs(self, requests: Iterable[Request], *, actor: str | None = None) -> tuple[NewJob, ...]:
        """Jobs to be inserted by somebody else's write: a completion, a schedule's tick."""
        prepared = self._prepare(requests, actor)
        for index, (new, plan) in enumerate(prepared):
            if plan.on_clash == "replace" and new.job.unique_key is not None:
                rule = "'replace' works for one job on its own; use submit"
                raise _placed(InvalidInput("on_clash", rule), index, len(prepared))
        return tuple(new for new, _ in prepared)

    async def _insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        try:
            return await self._store.insert(jobs)
        except (Conflict, InvalidInput) as error:
            raise _in_requests(error, len(jobs)) from error.__cause__

    def _prepare(self, requests: Iterable[Request], actor: str | None = None) -> list[tuple[NewJob, Plan]]:
        try:
            requests = list(requests)
        except TypeError:
            _check_list(requests)
            raise
        now_ms = self._store.clock.now_ms()
        chain, limit, actor = self._store.chain, self._limit, actor or self._actor
        sha256, known = hashlib.sha256, self._names
        makers: dict[int, _Maker] = {}
        prepared = []
        ids = self._ids.take(now_ms, len(requests))
        for index, (request, job_id) in enumerate(zip(requests, ids, strict=True)):
            try:
                # equal options are most often the same object, or none: what they come to is worked out once
                options = request.options
                kept = id(options) if options else 0
                maker = makers.get(kept)
                if maker is None:
                    maker = makers[kept] = self._maker(options, now_ms)
                name = request.name
                if name not in known:
                    self._learn(name)
                payload = encoded(request.payload, field="payload", limit=limit)
                content = request.content
                if content is not None and not isinstance(content, bytes):
                    raise InvalidInput("content", f"must be bytes, not {type(content).__name__}")
                job = maker.make(job_id, name, payload, content)
                details = {"payload_sha256": sha256(payload).hexdigest()[:32]}
                moved = submit(job, now_ms=now_ms, actor=actor, chain=chain, details=details)
            except InvalidInput as error:
                raise _placed(error, index, len(requests)) from None
            except AttributeError:
                _check_request(request, index)
                raise
            prepared.append((maker.wrap(moved.job, moved.events, content), maker.plan))
        return prepared

    def _maker(self, options: Mapping[str, Any] | Plan, now_ms: int) -> _Maker:
        plan = options if isinstance(options, Plan) else self._reader.read(options)
        return _Maker(plan, now_ms, self._boost_ms)

    def _learn(self, name: str) -> None:
        check_name(name)
        if len(self._names) >= _KNOWN_NAMES:
            self._names.clear()
        self._names.add(name)

    async def _replace(self, new: NewJob) -> Submitted:
        """Insert, or cancel the waiting holder of the unique key and insert in the same transaction."""
        for _ in range(_REPLACE_ROUNDS):
            made = (await self._insert([new]))[0]
            if made.created:
                return Submitted(made.id, True)
            if made.by == "key":
                return Submitted(made.id, False)  # sent before; its job stands for it, whatever became of that one
            holder = (await self._store.get([made.id]))[0]
            if holder is None:
                continue
            change = self._replacement(holder, new)
            if change is None:
                continue
            if (await self._store.apply([change]))[0].outcome != "applied":
                continue
            # a spawned job may have met another with its key; the answer does not say, so look before promising it
            if (await self._store.get([new.job.id]))[0] is not None:
                log.info("replaced job_id=%s by=%s", holder.id, new.job.id)
                return Submitted(new.job.id, True)
        raise Conflict(f"unique key {new.job.unique_key!r}: others kept taking it; nothing was submitted, try again")

    def _replacement(self, holder: Job, new: NewJob) -> Change | None:
        """The change that puts `new` in the place of the holder; None when the holder has just settled."""
        state = table_of(holder.parent).get(holder.status)
        if state is not None and state.settled:
            return None
        if state is None or state.holds:
            raise UniqueClash(
                f"job {holder.id} holds the unique key {new.job.unique_key!r} and is {holder.status}; only a waiting "
                "job can be replaced: wait for it, or cancel it first"
            )
        move = Move(to="cancelled", reason=f"replaced by {new.job.id}", details={"replaced_by": new.job.id})
        now_ms = self._store.clock.now_ms()
        moved = apply(holder, move, now_ms=now_ms, actor=self._actor, chain=self._store.chain)
        return Change(before=holder, after=moved.job, events=moved.events, spawn=(new,))


class _Maker:
    """Builds the rows of one plan: everything that does not differ between them is worked out here, once."""

    def __init__(self, plan: Plan, now_ms: int, boost_ms: int) -> None:
        self.plan = plan
        self._now_ms = now_ms
        due_ms = now_ms + plan.delay_ms if plan.run_at_ms is None else max(plan.run_at_ms, now_ms)
        waits = due_ms > now_ms
        due_ms = min(due_ms, AWAITS_MS - 1)
        options = plan.options
        if plan.start_within_ms is not None:
            options = msgspec.structs.replace(options, start_by_ms=due_ms + plan.start_within_ms)
        elif options.start_by_ms is not None and options.start_by_ms <= due_ms:
            raise InvalidInput("queue_deadline", f"{time_text(options.start_by_ms)} is before the job is even due")
        reason = f"waits until {time_text(due_ms)}" if waits else None
        if plan.after:
            options = msgspec.structs.replace(options, not_before_ms=due_ms if waits else None)
            reason = f"waits for {len(plan.after)} {'job' if len(plan.after) == 1 else 'jobs'}"
            due_ms, waits = AWAITS_MS, True
        scheduled = waits and "scheduled" in table_of(plan.parent).start
        self._template = msgspec.structs.replace(
            BLANK,
            kind=plan.kind,
            queue=plan.queue,
            parent=plan.parent,
            unit=plan.unit,
            group=plan.group,
            options=options,
            key=plan.key,
            concurrency_key=plan.concurrency_key,
            priority=plan.priority,
            status="scheduled" if scheduled else "pending",
            reason=reason,
            due_ms=due_ms,
            rank=rank_of(due_ms, plan.priority, boost_ms),
        )
        plain = not plan.key and plan.on_clash == "return" and not plan.after
        self.wrap: Callable[..., NewJob] = _bare if plain else self._wrap

    def make(self, job_id: str, name: str, payload: bytes, content: bytes | None) -> Job:
        unique = self.plan.unique
        if unique is None:
            return msgspec.structs.replace(self._template, id=job_id, name=name, payload=payload)
        # scoped by the task, so that two tasks with the same word for a key do not meet
        if unique is True:
            unique = content_of(name, payload if content is None else content).hex()[:32]
        unique = f"{name}/{unique}"
        return msgspec.structs.replace(self._template, id=job_id, name=name, payload=payload, unique_key=unique)

    def _wrap(self, job: Job, events: Any, content: bytes | None) -> NewJob:
        plan = self.plan
        key = None
        if plan.key is not None:
            digest = content_of(job.name, job.payload if content is None else content)
            key = Key(scope=job.name, name=plan.key, content=digest, until_ms=self._now_ms + plan.key_ttl_ms)
        on_clash: Literal["return", "refuse"] = "refuse" if plan.on_clash == "refuse" else "return"
        return NewJob(job=job, events=events, key=key, on_clash=on_clash, after=plan.after)


def _bare(job: Job, events: Any, _: object) -> NewJob:
    return NewJob(job=job, events=events)


# asked only once something has failed, so that the many good ones pay nothing


def _check_list(given: object) -> None:
    if not isinstance(given, Iterable):
        raise InvalidInput("requests", f"{shown(given)} is not a list of requests") from None


def _check_request(given: object, index: int) -> None:
    if not isinstance(given, Request):
        rule = f"{shown(given)} is not a request; write Request(name, payload, options)"
        raise InvalidInput(f"requests[{index}]", rule) from None


def _in_requests(error: Conflict | InvalidInput, many: int) -> Conflict | InvalidInput:
    """A store's refusal, which calls its jobs by their index, in the words of whoever submitted them."""
    first = error.field if isinstance(error, InvalidInput) else str(error)
    found = _INDEXED.match(first)
    if found is None:
        return error
    rest = first[found.end() :]
    said = rest if many == 1 else f"requests[{found[1]}]{found[2]}{rest}"
    if isinstance(error, InvalidInput):
        error.field, said = said, f"{said}: {error.rule}"
    error.args = (said,)
    return error


def _placed(error: InvalidInput, index: int, many: int) -> InvalidInput:
    """In a batch, say which request it was."""
    if many == 1:
        return error
    error.field = f"requests[{index}].{error.field}"
    error.args = (f"{error.field}: {error.rule}",)
    return error
