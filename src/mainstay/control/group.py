"""Groups: many jobs, and one that runs when all of them are done."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..errors import Conflict, InvalidInput
from ..stores import Durability, InsertResult, NewJob
from ..stores.durability import strongest
from .failure import shown
from .job_factory import JobRequest
from .options import MOST_AWAITED, Plan
from .payload import content_of

ReadOptions = Callable[[Mapping[str, Any]], Plan]
MakeJobs = Callable[[Iterable[JobRequest]], Sequence[NewJob]]

_MEMBER = re.compile(r"(?:requests|jobs)\[(\d+)\]")


class SubmittedGroup(msgspec.Struct, frozen=True):
    """A group as it is stored. When its callback had been submitted before (`then.created` is False), nothing was
    stored now, and the members are those that one waits or waited for: with its key, those that were submitted with
    it."""

    then: InsertResult
    """the callback; its id is the `group` of the members that were made for it"""
    members: list[InsertResult]


def known_group(callback: str, jobs: Sequence[NewJob], awaited: Sequence[str], said: str = "") -> SubmittedGroup:
    """A group whose callback was submitted before. With its key it was the same group, and the answer is as it was
    then; one that met another by its unique key alone tells what that one waits for."""
    *members, then = jobs
    ids = awaited if then.job.unique_key is not None else _paired(members, awaited)
    results = [InsertResult(job_id, False, durability=said) for job_id in (callback, *ids)]
    return SubmittedGroup(results[0], results[1:])


def _paired(members: Sequence[NewJob], awaited: Sequence[str]) -> Sequence[str]:
    """Who stands for each member: those that meet each other, by a key, are one job, and waited for once."""
    left = iter(awaited)
    seen: dict[tuple[str, ...], str] = {}
    found = []
    for new in members:
        names = _names(new).values()
        stands = next((seen[name] for name in names if name in seen), None) or next(left, None)
        if stands is None:
            return awaited
        seen.update(dict.fromkeys(names, stands))
        found.append(stands)
    return awaited if next(left, None) else found


def _names(new: NewJob) -> dict[str, tuple[str, ...]]:
    """What a job is met by, by the option that says it."""
    found: dict[str, tuple[str, ...]] = {}
    if new.key is not None:
        found["key"] = (new.key.scope, new.key.name)
    if new.job.unique_key is not None:
        found["unique"] = (new.job.unique_key,)
    return found


def group_jobs(
    members: Iterable[JobRequest],
    then: JobRequest,
    *,
    when: Literal["succeeded", "settled"],
    failed: Literal["skip", "fail"],
    plan: ReadOptions,
    new_jobs: MakeJobs,
) -> tuple[list[NewJob], Durability | None]:
    """The members and, last, the callback that waits for them; and how safe they are to be."""
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
    names = _names(then)
    for index, each in enumerate(members):
        for field, name in _names(each).items():
            if names.get(field) == name:
                rule = f"is that of members[{index}], which is of the same task, so they would be one job; take another"
                raise InvalidInput(f"then.{field}", rule)


def _keyed_as_a_whole(then: NewJob, requests: Sequence[JobRequest], members: Sequence[NewJob], how: str) -> NewJob:
    """Its key stands for the group: with other members, or another condition, it is used for something else."""
    if then.key is None:
        return then
    digest = hashlib.sha256(then.key.content + how.encode())
    for request, new in zip(requests, members, strict=True):
        digest.update(content_of(new.job.name, new.job.payload if request.content is None else request.content))
    return msgspec.structs.replace(then, key=msgspec.structs.replace(then.key, content=digest.digest()))


def _durability(options: Mapping[str, Any] | Plan) -> Durability | None:
    return options.durability if isinstance(options, Plan) else options.get("durability")


def _members(requests: list[JobRequest], new_jobs: MakeJobs) -> Sequence[NewJob]:
    try:
        new = new_jobs(requests)
    except InvalidInput as error:
        # of one alone it is not said which
        said = error.field if error.field.startswith("requests") else f"requests[0].{error.field}"
        raise _renamed(error, said.replace("requests", "members", 1)) from None
    if len(new) > MOST_AWAITED:
        raise InvalidInput("members", f"{len(new)} jobs are more than the limit of {MOST_AWAITED} for one group")
    for index, each in enumerate(new):
        if each.job.group is not None:
            raise InvalidInput(f"members[{index}].group", "a member belongs to the group it is submitted with")
    return new


def _callback(
    then: JobRequest, after: tuple[str, ...], when: str, failed: str, read: ReadOptions, new_jobs: MakeJobs
) -> tuple[Plan, NewJob]:
    try:
        given = then.options
        plan = given if isinstance(given, Plan) else read(given)
        if plan.after or plan.parent is not None:
            name = "after" if plan.after else "parent"
            raise InvalidInput(name, "the callback waits for the members of its group; submit it without")
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
        raise InvalidInput("failed", "means nothing with when='settled': any end of the members will do")


def in_group(error: Conflict | InvalidInput, members: int) -> Conflict | InvalidInput:
    """A store's refusal, which calls its jobs by their index, in the words of whoever submitted them."""

    def name(found: re.Match[str]) -> str:
        return f"members[{found[1]}]" if int(found[1]) < members else "then"

    said, link = (error.field, ".") if isinstance(error, InvalidInput) else (str(error), ": ")
    placed, found = _MEMBER.subn(name, said, count=1)
    if not found and not members:  # of one alone it is not said which
        placed = f"then{link}{said}"
    if isinstance(error, InvalidInput):
        return _renamed(error, placed)
    error.args = (placed,)
    return error


def _renamed(error: InvalidInput, field: str) -> InvalidInput:
    error.field = field
    error.args = (f"{field}: {error.rule}",)
    return error
