"""Groups: many jobs, and one that runs when all of them are done."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..errors import AlreadySubmitted, Conflict, InvalidInput
from ..stores import Durability, JobStore, NewJob
from ..stores.durability import strongest
from .failure import shown
from .options import MOST_AWAITED, Plan
from .submit import Request, Submitted, Submitter

ReadOptions = Callable[[Mapping[str, Any]], Plan]
MakeJobs = Callable[[Iterable[Request]], Sequence[NewJob]]

_MEMBER = re.compile(r"(?:requests|jobs)\[(\d+)\]")


class SubmittedGroup(msgspec.Struct, frozen=True):
    """A group as it is stored. When its callback had been submitted before (`then.created` is False), nothing was
    stored now, and the members are those that one waits or waited for."""

    then: Submitted
    """the callback; its id is the `group` of the members that were made for it"""
    members: list[Submitted]


class Grouper:
    """Submits groups."""

    def __init__(self, store: JobStore, submitter: Submitter) -> None:
        self._store = store
        self._submitter = submitter

    async def submit(
        self,
        members: Iterable[Request],
        then: Request,
        *,
        when: Literal["succeeded", "settled"],
        failed: Literal["skip", "fail"],
    ) -> SubmittedGroup:
        """Members and callback in one insert, all or none."""
        plan, new_jobs = self._submitter.plan, self._submitter.new_jobs
        jobs, durability = group_jobs(members, then, when=when, failed=failed, plan=plan, new_jobs=new_jobs)
        try:
            stored = await self._submitter.insert(jobs, durability)
        except AlreadySubmitted as known:
            return known_group(known.job_id, await self._store.awaited(known.job_id))
        except (Conflict, InvalidInput) as error:
            raise in_group(error, len(jobs) - 1) from error.__cause__
        return SubmittedGroup(stored[-1], stored[:-1])


def known_group(callback: str, awaited: Iterable[str]) -> SubmittedGroup:
    """A group whose callback was submitted before."""
    return SubmittedGroup(Submitted(callback, False), [Submitted(each, False) for each in awaited])


def group_jobs(
    members: Iterable[Request],
    then: Request,
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
    group = callback.job.id
    jobs = [msgspec.structs.replace(each, job=msgspec.structs.replace(each.job, group=group)) for each in new]
    return [*jobs, callback], strongest([read.durability, *(_durability(each.options) for each in requests)])


def _durability(options: Mapping[str, Any] | Plan) -> Durability | None:
    return options.durability if isinstance(options, Plan) else options.get("durability")


def _members(requests: list[Request], new_jobs: MakeJobs) -> Sequence[NewJob]:
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
    then: Request, after: tuple[str, ...], when: str, failed: str, read: ReadOptions, new_jobs: MakeJobs
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

    if isinstance(error, InvalidInput):
        return _renamed(error, _MEMBER.sub(name, error.field, count=1))
    error.args = (_MEMBER.sub(name, str(error), count=1),)
    return error


def _renamed(error: InvalidInput, field: str) -> InvalidInput:
    error.field = field
    error.args = (f"{field}: {error.rule}",)
    return error
