"""Asking workers to drain: whom a name means, and whom the id of a session."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mainstay.control import Control
from mainstay.errors import InvalidInput, WorkerNotFound
from mainstay.testing import MemoryStore


@pytest.fixture
def control() -> Control:
    return Control(MemoryStore())


async def test_the_id_of_one_session_means_every_process_of_its_worker_and_of_no_other(control: Control) -> None:
    one = await control.claims.open_session(worker="mail", host="a", pid=11, supervisor=10)
    two = await control.claims.open_session(worker="mail", host="a", pid=12, supervisor=10)
    for host, supervisor in (("a", 20), ("b", 10), ("a", 0)):
        await control.claims.open_session(worker="mail", host=host, supervisor=supervisor)

    asked = await control.operations.drain(two.id, actor="ann")

    assert [session.id for session in asked] == [one.id, two.id]
    assert {session.draining_by for session in asked} == {"ann"}
    drained = {session.id for session in await control.store.sessions() if session.draining_ms is not None}
    assert drained == {one.id, two.id}


async def test_a_process_that_is_a_worker_of_its_own_is_drained_alone(control: Control) -> None:
    one = await control.claims.open_session(worker="load", host="a", pid=11)
    await control.claims.open_session(worker="load", host="a", pid=12)

    assert [session.id for session in await control.operations.drain(one.id, actor="ann")] == [one.id]


async def test_a_name_means_all_workers_that_have_it(control: Control) -> None:
    mail = [(await control.claims.open_session(worker="mail", host=host, supervisor=10)).id for host in "ab"]
    await control.claims.open_session(worker="mails", host="a", supervisor=10)
    await control.claims.open_session()

    assert [session.id for session in await control.operations.drain("mail", actor="ann")] == mail


async def test_who_asked_first_is_told_to_who_asks_again(control: Control) -> None:
    await control.claims.open_session(worker="mail")
    [first] = await control.operations.drain("mail", actor="ann")

    [again] = await control.operations.drain("mail", actor="bob")

    assert (again.draining_ms, again.draining_by) == (first.draining_ms, "ann")


async def test_whoever_is_not_there_cannot_be_drained(control: Control) -> None:
    session = await control.claims.open_session(worker="mail")
    await control.claims.close_session(session.id)

    for which in (session.id, "mail", "nobody"):
        with pytest.raises(WorkerNotFound, match=f"session is called '{which}'; .*mainstay workers list"):
            await control.operations.drain(which, actor="ann")


@pytest.mark.parametrize(("which", "actor", "field"), [("", "ann", "worker"), ("mail", " ", "actor")])
async def test_a_worker_and_who_asks_are_named(control: Control, which: str, actor: str, field: str) -> None:
    await control.claims.open_session(worker="mail")
    with pytest.raises(InvalidInput, match=f"^{field}: "):
        await control.operations.drain(which, actor=actor)


async def test_a_worker_that_ends_in_the_moment_it_is_asked_is_answered_with_all_the_same() -> None:
    class Prompt(MemoryStore):
        async def drain(self, sessions: Sequence[str], *, by: str) -> list[bool]:
            asked = await super().drain(sessions, by=by)
            for session in sessions:
                await self.close_session(session)
            return asked

    control = Control(Prompt())
    session = await control.claims.open_session(worker="mail")

    [asked] = await control.operations.drain("mail", actor="ann")

    assert (asked.id, asked.draining_by) == (session.id, "ann")
    assert asked.draining_ms is not None
