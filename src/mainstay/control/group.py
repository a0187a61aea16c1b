"""Groups: many jobs, and one that runs when all of them are done."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ..errors import AlreadySubmitted, Conflict, InvalidInput
from ..stores import JobStore, NewJob
from .options import MOST_AWAITED, Plan
from .submit import Request, Submitted, Submitter

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
        _check_words(when, failed)
        new = self._members(members)
        callback = self._callback(then, tuple(each.job.id for each in new), when, failed)
        group = callback.job.id
        jobs = [msgspec.structs.replace(each, job=msgspec.structs.replace(each.job, group=group)) for each in new]
        try:
            made = await self._store.insert([*jobs, callback])
        except AlreadySubmitted as known:
            found = await self._store.awaited(known.job_id)
            return SubmittedGroup(Submitted(known.job_id, False), [Submitted(each, False) for each in found])
        except (Conflict, InvalidInput) as error:
            raise _in_group(error, len(new)) from error.__cause__
        stored = [Submitted(each.id, each.created) for each in made]
        return SubmittedGroup(stored[-1], stored[:-1])

    def _members(self, requests: Iterable[Request]) -> Sequence[NewJob]:
        try:
            new = self._submitter.new_jobs(requests)
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

    def _callback(self, then: Request, after: tuple[str, ...], when: str, failed: str) -> NewJob:
        try:
            given = then.options
            plan = given if isinstance(given, Plan) else self._submitter.plan(given)
            if plan.after or plan.parent is not None:
                name = "after" if plan.after else "parent"
                raise InvalidInput(name, "the callback waits for the members of its group; submit it without")
            if after:
                wait = {"after_when": when, "after_failed": failed if when == "succeeded" else None}
                plan = msgspec.structs.replace(plan, after=after, options=msgspec.structs.replace(plan.options, **wait))
            [new] = self._submitter.new_jobs([msgspec.structs.replace(then, options=plan)])
        except InvalidInput as error:
            raise _renamed(error, f"then.{error.field}") from None
        return msgspec.structs.replace(new, must_be_new=True)


def _check_words(when: str, failed: str) -> None:
    if when not in ("succeeded", "settled"):
        raise InvalidInput("when", f"{when!r} is not one of succeeded, settled")
    if failed not in ("skip", "fail"):
        raise InvalidInput("failed", f"{failed!r} is not one of skip, fail")
    if when == "settled" and failed == "fail":
        raise InvalidInput("failed", "means nothing with when='settled': any end of the members will do")


def _in_group(error: Conflict | InvalidInput, members: int) -> Conflict | InvalidInput:
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
