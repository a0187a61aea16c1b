"""From requests to new rows: everything is checked before anything is written."""

from __future__ import annotations

import hashlib
import random
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from ..errors import Conflict, InvalidInput
from ..lifecycle import Chain, Moved, submit, table_of, time_text
from ..model import AWAITS_MS, BLANK, PLACE_MS, IdSource, Settings, check_id, rank_of
from ..stores import Key, NewJob
from .failure import shown
from .options import OptionReader, Plan, check_name
from .payload import content_of, encoded, unique_of

_KNOWN_NAMES = 4096
#: how stores name a job in an error
_INDEXED = re.compile(r"jobs\[(\d+)\](: |\.)")
_sha256 = hashlib.sha256


class JobRequest(msgspec.Struct, frozen=True):
    """One job to submit. `options` are written as for `submit`, or read beforehand by `Control.plan`.

    >>> JobRequest("mail.send", {"to": "a@b.c"}, {"queue": "mail"}).name
    'mail.send'
    """

    name: str
    payload: Any = None
    options: Mapping[str, Any] | Plan = {}
    content: bytes | None = None
    """the content that its idempotency key stands for, if the payload differs each time (a codec encrypts it);
    None: the payload"""
    id: str | None = None
    """its id, if that has to be known beforehand; None: a new one"""


class JobFactory:
    """Makes jobs from requests, with the defaults of the settings. Safe for use by several threads."""

    def __init__(self, settings: Settings, rng: random.Random, actor: str) -> None:
        self._reader = OptionReader(settings)
        self._ids = IdSource(rng)
        self._turn = threading.Lock()
        self._actor = actor
        self._limit = settings.payload_limit
        self._boost_ms = round(settings.priority_boost_s * 1000)
        self._names: set[str] = set()

    def plan(self, options: Mapping[str, Any]) -> Plan:
        """Read options once, to submit many jobs with them."""
        return self._reader.read(options)

    def together(
        self, requests: Iterable[JobRequest], *, now_ms: int, chain: Chain, actor: str | None = None
    ) -> tuple[NewJob, ...]:
        """Jobs to be inserted by another write: a completion, the tick of a schedule, a transaction."""
        prepared = self.make(requests, now_ms=now_ms, chain=chain, actor=actor)
        for index, (new, plan) in enumerate(prepared):
            if plan.on_clash == "replace" and new.job.unique_key is not None:
                rule = "'replace' works for one job on its own; use submit"
                raise placed(InvalidInput("on_clash", rule), index, len(prepared))
        return tuple(new for new, _ in prepared)

    def make(
        self, requests: Iterable[JobRequest], *, now_ms: int, chain: Chain, actor: str | None = None
    ) -> list[tuple[NewJob, Plan]]:
        """The jobs, in the order of the requests, each with its options."""
        try:
            requests = list(requests)
        except TypeError:
            _check_list(requests)
            raise
        limit, actor, known = self._limit, actor or self._actor, self._names
        makers: dict[int, _Template] = {}
        prepared = []
        with self._turn:
            ids = self._ids.take(now_ms, len(requests))
        for index, (request, job_id) in enumerate(zip(requests, ids, strict=True)):
            try:
                # equal options are most often the same object, or none: they are evaluated once
                options = request.options
                options_id = id(options) if options else 0
                maker = makers.get(options_id)
                if maker is None:
                    plan = options if isinstance(options, Plan) else self._reader.read(options)
                    maker = makers[options_id] = _Template(plan, now_ms, self._boost_ms)
                name = request.name
                if name not in known:
                    self._learn(name)
                payload = encoded(request.payload, field="payload", limit=limit)
                content = request.content
                if content is not None and not isinstance(content, bytes):
                    raise InvalidInput("content", f"must be bytes, not {type(content).__name__}")
                own = job_id if request.id is None else check_id(request.id)
                new = maker.new_job(own, name, payload, content, actor, chain)
            except InvalidInput as error:
                raise placed(error, index, len(requests)) from None
            except AttributeError:
                _check_request(request, index)
                raise
            prepared.append((new, maker.plan))
        return prepared

    def _learn(self, name: str) -> None:
        check_name(name)
        if len(self._names) >= _KNOWN_NAMES:
            self._names.clear()
        self._names.add(name)


class _Template:
    """Builds the rows of one plan: what they have in common is computed once."""

    def __init__(self, plan: Plan, now_ms: int, boost_ms: int) -> None:
        self.plan = plan
        self._now_ms = now_ms
        due_ms = now_ms + plan.delay_ms if plan.run_at_ms is None else max(plan.run_at_ms, now_ms)
        waits = due_ms > now_ms
        due_ms = min(due_ms, PLACE_MS - 1)
        options = plan.options
        if plan.start_within_ms is not None:
            options = msgspec.structs.replace(options, start_by_ms=due_ms + plan.start_within_ms)
        elif options.start_by_ms is not None and options.start_by_ms <= due_ms:
            raise InvalidInput("queue_deadline", f"{time_text(options.start_by_ms)} is before the job is due")
        reason = f"waits until {time_text(due_ms)}" if waits else None
        if plan.after:
            options = msgspec.structs.replace(options, not_before_ms=due_ms if waits else None)
            reason = f"waits for {len(plan.after)} {'job' if len(plan.after) == 1 else 'jobs'}"
            due_ms, waits = AWAITS_MS, True
        scheduled = waits and "scheduled" in table_of(plan.parent).start
        ranked_ms = now_ms if plan.ranked_at_submit else due_ms
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
            rank=rank_of(ranked_ms, plan.priority, boost_ms) if plan.priority else ranked_ms,
        )
        self._is_plain = not plan.key and plan.on_clash == "return" and not plan.after

    def new_job(
        self, job_id: str, name: str, payload: bytes, content: bytes | None, actor: str, chain: Chain
    ) -> NewJob:
        unique = self.plan.unique
        if unique is not None:
            # scoped by the task, so that equal keys of two tasks do not clash
            if unique is True:
                unique = unique_of(name, payload if content is None else content)
            unique = f"{name}/{unique}"
        job = msgspec.structs.replace(self._template, id=job_id, name=name, payload=payload, unique_key=unique)
        details = {"payload_sha256": _sha256(payload).hexdigest()[:32]}
        moved = submit(job, now_ms=self._now_ms, actor=actor, chain=chain, details=details)
        if self._is_plain:
            return NewJob(job=moved.job, events=moved.events)
        return self._with_keys(moved, content)

    def _with_keys(self, moved: Moved, content: bytes | None) -> NewJob:
        plan, job = self.plan, moved.job
        key = None
        if plan.key is not None:
            digest = content_of(job.name, job.payload if content is None else content)
            key = Key(scope=job.name, name=plan.key, content=digest, until_ms=self._now_ms + plan.key_ttl_ms)
        on_clash: Literal["return", "refuse"] = "refuse" if plan.on_clash == "refuse" else "return"
        return NewJob(job=job, events=moved.events, key=key, on_clash=on_clash, after=plan.after)


# checked only after something has failed, so that good requests pay nothing


def _check_list(given: object) -> None:
    if not isinstance(given, Iterable):
        raise InvalidInput("requests", f"{shown(given)} is not a list of requests") from None


def _check_request(given: object, index: int) -> None:
    if not isinstance(given, JobRequest):
        rule = f"{shown(given)} is not a request; write JobRequest(name, payload, options)"
        raise InvalidInput(f"requests[{index}]", rule) from None


def placed(error: InvalidInput, index: int, many: int) -> InvalidInput:
    """The error with the index of its request, in a batch of several."""
    if many == 1:
        return error
    error.field = f"requests[{index}].{error.field}"
    error.args = (f"{error.field}: {error.rule}",)
    return error


def in_requests(error: Conflict | InvalidInput, many: int) -> Conflict | InvalidInput:
    """The error of a store, which names jobs by their index, with the names that the submitter knows."""
    first = error.field if isinstance(error, InvalidInput) else str(error)
    index = _INDEXED.match(first)
    if index is None:
        return error
    rest = first[index.end() :]
    message = rest if many == 1 else f"requests[{index[1]}]{index[2]}{rest}"
    if isinstance(error, InvalidInput):
        error.field, message = message, f"{message}: {error.rule}"
    error.args = (message,)
    return error
