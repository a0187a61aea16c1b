"""Groups: many jobs, and a callback that runs when all of them are done."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..errors import Conflict, InvalidInput
from ..stores import Durability, InsertResult, NewJob, strongest
from .failure import shown
from .job_factory import JobRequest
from .options import MOST_AWAITED, Plan
from .payload import content_of

ReadOptions = Callable[[Mapping[str, Any]], Plan]
MakeJobs = Callable[[Iterable[JobRequest]], Sequence[NewJob]]

_MEMBER = re.compile(r"(?:requests|jobs)\[(\d+)\]")


class SubmittedGroup(msgspec.Struct, frozen=True):
    """A stored group. If its callback was submitted before (`then.created` is False), nothing was stored now, and the
    members are the jobs that the earlier callback waits or waited for."""

    then: InsertResult
    """the callback; its id is the `group` of the members that were created for it"""
    members: list[InsertResult]


def known_group(callback: str, jobs: Sequence[NewJob], awaited: Sequence[str], durability: str = "") -> SubmittedGroup:
    """A group whose callback was submitted before. The same idempotency key means the same group, so the answer is the
    same as then; if only the unique key matched, the members are those of the other callback."""
    *members, then = jobs
    ids = awaited if then.job.unique_key is not None else _paired(members, awaited)
    results = [InsertResult(job_id, False, durability=durability) for job_id in (callback, *ids)]
    return SubmittedGroup(results[0], results[1:])


def _paired(members: Sequence[NewJob], awaited: Sequence[str]) -> Sequence[str]:
    """The stored job of each member: members that share a key are one job, which is awaited once."""
    left = iter(awaited)
    ids_by_key: dict[tuple[str, ...], str] = {}
    paired = []
    for new in members:
        keys = _keys(new).values()
        job_id = next((ids_by_key[key] for key in keys if key in ids_by_key), None) or next(left, None)
        if job_id is None:
            return awaited
        ids_by_key.update(dict.fromkeys(keys, job_id))
        paired.append(job_id)
    return awaited if next(left, None) else paired


def _keys(new: NewJob) -> dict[str, tuple[str, ...]]:
    """The keys that identify a job, by their option."""
    keys: dict[str, tuple[str, ...]] = {}
    if new.key is not None:
        keys["key"] = (new.key.scope, new.key.name)
    if new.job.unique_key is not None:
        keys["unique"] = (new.job.unique_key,)
    return keys


def group_jobs(
    members: Iterable[JobRequest],
    then: JobRequest,
    *,
    when: Literal["succeeded", "settled"],
    failed: Literal["skip", "fail"],
    plan: ReadOptions,
    new_jobs: MakeJobs,
) -> tuple[list[NewJob], Durability | None]:
    """The members and, last, the callback that waits for them; and their durability."""
    _check_words(when, failed)
    try:
        requests = list(members)
    except TypeError:
        raise InvalidInput("members", f"{shown(members)} is not a list of requests") from None
    new = _members(requests, new_jobs)
    read, callback = _callback(then, tuple(each.job.id for each in new), when, failed, plan, new_jobs)
    _check_apart(new, callback)
    callback = _keyed_as_a_whole(callback, requests, new, f"{when} {failed}")
    group = callback.job.id
    jobs = [msgspec.structs.replace(each, job=msgspec.structs.replace(each.job, group=group)) for each in new]
    return [*jobs, callback], strongest([read.durability, *(_durability(each.options) for each in requests)])


def _check_apart(members: Sequence[NewJob], then: NewJob) -> None:
    """One job cannot be a member and wait for the members."""
    keys = _keys(then)
    for index, each in enumerate(members):
        for field, key in _keys(each).items():
            if keys.get(field) == key:
                rule = f"members[{index}], of the same task, has the same one, so both would be one job; use another"
                raise InvalidInput(f"then.{field}", rule)


def _keyed_as_a_whole(
    then: NewJob, requests: Sequence[JobRequest], members: Sequence[NewJob], condition: str
) -> NewJob:
    """The callback with a key for the whole group: other members or another condition are other content."""
    if then.key is None:
        return then
    digest = hashlib.sha256(then.key.content + condition.encode())
    for request, new in zip(requests, members, strict=True):
        digest.update(content_of(new.job.name, new.job.payload if request.content is None else request.content))
    return msgspec.structs.replace(then, key=msgspec.structs.replace(then.key, content=digest.digest()))


def _durability(options: Mapping[str, Any] | Plan) -> Durability | None:
    return options.durability if isinstance(options, Plan) else options.get("durability")


def _members(requests: list[JobRequest], new_jobs: MakeJobs) -> Sequence[NewJob]:
    try:
        new = new_jobs(requests)
    except InvalidInput as error:
        # the error about a single request has no index
        field = error.field if error.field.startswith("requests") else f"requests[0].{error.field}"
        raise _renamed(error, field.replace("requests", "members", 1)) from None
    if len(new) > MOST_AWAITED:
        raise InvalidInput("members", f"{len(new)} jobs are more than the limit of {MOST_AWAITED} for one group")
    for index, each in enumerate(new):
        if each.job.group is not None:
            raise InvalidInput(
                f"members[{index}].group", "leave it out; it is the group that the member is submitted with"
            )
    return new


def _callback(
    then: JobRequest, after: tuple[str, ...], when: str, failed: str, read: ReadOptions, new_jobs: MakeJobs
) -> tuple[Plan, NewJob]:
    try:
        given = then.options
        plan = given if isinstance(given, Plan) else read(given)
        if plan.after or plan.parent is not None:
            name = "after" if plan.after else "parent"
            raise InvalidInput(name, "leave it out; the callback waits for the members of its group")
        if after:
            wait = {"after_when": when, "after_failed": failed if when == "succeeded" else None}
            plan = msgspec.structs.replace(plan, after=after, options=msgspec.structs.replace(plan.options, **wait))
        [new] = new_jobs([msgspec.structs.replace(then, options=plan)])
    except InvalidInput as error:
        raise _renamed(error, f"then.{error.field}") from None
    return plan, msgspec.structs.replace(new, must_be_new=True)


def _check_words(when: str, failed: str) -> None:
    if when not in ("succeeded", "settled"):
        raise InvalidInput("when", f"{when!r} is not one of succeeded, settled")
    if failed not in ("skip", "fail"):
        raise InvalidInput("failed", f"{failed!r} is not one of skip, fail")
    if when == "settled" and failed == "fail":
        raise InvalidInput("failed", "has no effect with when='settled', which accepts every end")


def in_group(error: Conflict | InvalidInput, members: int) -> Conflict | InvalidInput:
    """A refusal of the store, which has the index of a job, with the name of the member instead."""

    def name(match: re.Match[str]) -> str:
        return f"members[{match[1]}]" if int(match[1]) < members else "then"

    text, separator = (error.field, ".") if isinstance(error, InvalidInput) else (str(error), ": ")
    named, matches = _MEMBER.subn(name, text, count=1)
    if not matches and not members:  # the error about a single job has no index
        named = f"then{separator}{text}"
    if isinstance(error, InvalidInput):
        return _renamed(error, named)
    error.args = (named,)
    return error


def _renamed(error: InvalidInput, field: str) -> InvalidInput:
    error.field = field
    error.args = (f"{field}: {error.rule}",)
    return error
