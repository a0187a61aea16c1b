"""What a page offers is what may be done: neither more nor less."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from mainstay.control import Control
from mainstay.errors import InvalidInput, InvalidTransition
from mainstay.lifecycle import JOB, Move
from mainstay.model import Job
from mainstay.testing import MemoryStore
from mainstay.web.dashboard.job import allowed_actions, forced_states


async def job_in(control: Control, state: str) -> Job:
    made = await control.jobs.submit("t")
    if JOB.states[state].holds:
        # force invents no owner
        session = await control.claims.open_session()
        (job,) = await control.claims.claim(["default"], session.id, 1)
        await control.claims.start([job])
        if state == "cancelling":
            return await control.operations.cancel(made.id, actor="test")
        if state != "running":
            await control.drivers.act(made.id, lambda _job, _now_ms: (Move(to=state, reason="next"),), actor="test")
        return await control.jobs.get(made.id)
    return await control.operations.force(made.id, state, actor="test", reason="to have one")


async def works(act: Callable[[], Awaitable[object]]) -> bool:
    try:
        await act()
    except (InvalidTransition, InvalidInput):
        return False
    return True


@pytest.mark.parametrize("state", [name for name in JOB.states if name != "pending"])
async def test_retry_is_offered_where_it_is_accepted(state: str) -> None:
    control = Control(MemoryStore())
    job = await job_in(control, state)
    accepted = await works(lambda: control.operations.retry(job.id, actor="ann"))
    assert allowed_actions(job, JOB.get(state)).retry is accepted


@pytest.mark.parametrize("state", list(JOB.states))
async def test_cancel_is_offered_where_it_is_accepted(state: str) -> None:
    control = Control(MemoryStore())
    job = await job_in(control, state)
    accepted = await works(lambda: control.operations.cancel(job.id, actor="ann"))
    # twice is once: it is accepted, and there is nothing to offer
    assert allowed_actions(job, JOB.get(state)).cancel is (accepted and state != "cancelled")


async def _forced(state: str, to: str) -> None:
    control = Control(MemoryStore())
    job = await job_in(control, state)
    await control.operations.force(job.id, to, actor="ann", reason="to see")


@pytest.mark.parametrize("state", list(JOB.states))
async def test_force_is_offered_to_states_that_it_reaches(state: str) -> None:
    control = Control(MemoryStore())
    job = await job_in(control, state)
    accepted = {to: await works(lambda to=to: _forced(state, to)) for to in forced_states(job)}  # type: ignore[misc]
    assert allowed_actions(job, JOB.get(state)).force is all(accepted.values()), accepted


async def test_a_priority_that_is_offered_can_be_changed() -> None:
    for state in JOB.states:
        control = Control(MemoryStore())
        job = await job_in(control, state)
        if allowed_actions(job, JOB.get(state)).priority:
            assert await works(lambda c=control, j=job: c.operations.set_priority(j.id, 5, actor="ann")), state  # type: ignore[misc]


async def test_a_job_that_waits_for_others_is_not_offered_to_be_retried() -> None:
    control = Control(MemoryStore())
    first = await control.jobs.submit("first")
    made = await control.jobs.submit("second", after=[first.id])
    job = await control.jobs.get(made.id)
    assert allowed_actions(job, JOB.get(job.status)).retry is False


async def test_nothing_is_offered_for_a_state_that_only_a_newer_version_knows() -> None:
    control = Control(MemoryStore())
    job = await control.jobs.get((await control.jobs.submit("t")).id)
    can = allowed_actions(job, None)
    assert not any((can.retry, can.cancel, can.priority, can.force, can.own))
