"""Groups: many jobs, and a callback that runs when all of them are done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Literal, TypeVar

from ..control import SubmittedGroup
from ..task import AppClient, Call, Handle, Returns, Transaction
from .bulk import check_call

M = TypeVar("M")
R = TypeVar("R")
M_co = TypeVar("M_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)


class Group(Generic[M_co, R_co]):
    """A submitted group. `then` is the callback, which runs once when the members are done."""

    __slots__ = ("members", "then")

    def __init__(self, members: tuple[Handle[M_co], ...], then: Handle[R_co]) -> None:
        self.members = members
        """in the order given"""
        self.then = then

    def __repr__(self) -> str:
        return f"<group of {len(self.members)} then {self.then!r}>"


async def submit_group(
    client: AppClient,
    members: Iterable[Call[M]],
    then: Call[R],
    *,
    when: Literal["succeeded", "settled"],
    failed: Literal["skip", "fail"],
    connection: Any = None,
) -> Group[M, R]:
    calls = _checked(client, members, then)
    requests = [call.ready() for call in calls]
    if connection is None:
        control = await client.open()
        stored = await control.jobs.submit_group(requests, then.ready(), when=when, failed=failed)
    else:
        stored = await Transaction(client, connection).take(
            lambda enqueuer: enqueuer.submit_group(requests, then.ready(), when=when, failed=failed)
        )
    return _group(client, calls, then, stored)


def submit_group_within(
    client: AppClient,
    members: Iterable[Call[M]],
    then: Call[R],
    *,
    when: Literal["succeeded", "settled"],
    failed: Literal["skip", "fail"],
    connection: Any,
) -> Group[M, R]:
    """The same within a transaction, for code without a loop."""
    calls = _checked(client, members, then)
    requests = [call.ready() for call in calls]
    stored = Transaction(client, connection).take_sync(
        lambda enqueuer: enqueuer.submit_group(requests, then.ready(), when=when, failed=failed), what="group_sync"
    )
    return _group(client, calls, then, stored)


def _checked(client: AppClient, members: Iterable[Call[M]], then: Call[R]) -> list[Call[M]]:
    calls = list(members)
    for call in (*calls, then):
        check_call(client, call)
    return calls


def _group(client: AppClient, calls: list[Call[M]], then: Call[R], stored: SubmittedGroup) -> Group[M, R]:
    if stored.then.created:
        kinds: list[Returns[M]] = [call.returns for call in calls]
    else:
        # it was submitted before, maybe with other members, whose return types are unknown here
        kinds = [Returns("a member", Any, client.sealer)] * len(stored.members)
    handles = tuple(Handle.of(client, kind, each) for kind, each in zip(kinds, stored.members, strict=True))
    return Group(handles, Handle.of(client, then.returns, stored.then))
