"""Many actors on one store at the same time; what they noted is checked against what may be."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from pathlib import Path

import pytest

from mainstay.control.check import check
from mainstay.model import PLACE_QUEUE
from mainstay.stores import JobStore, open_store
from tests.conformance import actors
from tests.conformance.actors import LIMIT, LIMITED, Leader, Plan, Submitter, Worker
from tests.conformance.adapters import Adapter
from tests.conformance.history import Ended, Entry, History, wrongs
from tests.conformance.world import World


async def ended_in(store: JobStore) -> list[Ended]:
    """How every job stands, after checking its history's seals."""
    rows: list[Ended] = []
    after = ""
    while page := await store.audit(after=after, limit=500):
        for found in page:
            job = found.job
            assert store.chain.first_break(job, found.events) is None
            done = sum(event.to == "succeeded" for event in found.events)
            rows.append(Ended(job.id, job.status, job.token, done))
        after = page[-1].job.id
    return rows


async def _assert_right(store: JobStore, history: History, plan: Plan) -> None:
    ended = await ended_in(store)
    assert wrongs(history, ended, {LIMITED: LIMIT}) == []
    assert len(ended) == plan.total
    assert await store.check() == []
    assert (await check(store)).violations == ()
    # ghosts that were refused are on record, once per job and token
    ghosts = {(e.job, e.token) for e in history if e.what == "complete" and e.outcome == "stale"}
    for job, token in ghosts:
        assert token in [refusal.token for refusal in await store.refusals(job)]
    # and the actors did meet: a run in which nothing special happened would prove nothing
    seen = Counter((entry.what, entry.outcome) for entry in history)
    met = [("insert", "known"), ("again", "already_applied"), ("release", "applied")]
    # that somebody is taken for dead is a matter of chance where the few jobs of a slow store are soon done
    met += [("reap", "applied")] * (plan.total >= 1000)
    for wanted in met:
        assert seen[wanted] > 0, f"no {wanted} in {seen}"
    assert len({entry.actor for entry in history if entry.what == "claim"}) > 1


async def _limit(store: JobStore) -> JobStore:
    await store.set_limit(LIMITED, LIMIT)
    return store


@pytest.mark.slow
def test_threads_with_loops_of_their_own_share_a_store(adapter: Adapter, tmp_path: Path) -> None:
    plan = Plan(submitters=3, each=600 // adapter.slow, shared=60 // adapter.slow)
    url = adapter.at(tmp_path)
    store = asyncio.run(open_store(url))
    asyncio.run(_limit(store))
    team = [Submitter(store, f"submitter-{n}", plan) for n in range(plan.submitters)]
    team += [Worker(store, f"worker-{n}", plan) for n in range(4)]
    errors: list[BaseException] = []

    def act(actor: actors.Actor) -> None:
        try:
            asyncio.run(actor.run())  # type: ignore[attr-defined]
        except BaseException as error:  # noqa: BLE001 - told to the test, not to the thread
            errors.append(error)

    threads = [threading.Thread(target=act, args=(actor,), daemon=True) for actor in team]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    asyncio.run(_assert_right(store, [entry for actor in team for entry in actor.history], plan))
    asyncio.run(store.close())


async def test_tasks_of_one_loop_share_a_store(adapter: Adapter, tmp_path: Path) -> None:
    plan = Plan(submitters=2, each=150 if adapter.bucket else 300, shared=30)
    store = await _limit(await open_store(await adapter.ready(tmp_path)))
    team = [Submitter(store, f"submitter-{n}", plan) for n in range(plan.submitters)]
    team += [Worker(store, f"worker-{n}", plan) for n in range(4)]
    await asyncio.gather(*(actor.run() for actor in team))
    await _assert_right(store, [entry for actor in team for entry in actor.history], plan)
    await store.close()


@pytest.mark.slow
async def test_processes_share_a_store(adapter: Adapter, tmp_path: Path) -> None:
    if not adapter.persistent:
        pytest.skip(f"a {adapter.name} store belongs to one process")
    plan = Plan(submitters=2, each=700 // adapter.slow, shared=60 // adapter.slow)
    url = adapter.at(tmp_path)
    store = await _limit(await open_store(url))
    history = await actors.in_processes(url, plan, tmp_path, workers=3)
    await _assert_right(store, history, plan)
    await store.close()


async def _with_units(store: JobStore, n: int) -> Plan:
    world = World(store, store.clock)  # type: ignore[arg-type]
    parent = await world.submit(kind="node", queue=PLACE_QUEUE)
    await store.insert([world.new(kind="node", queue=PLACE_QUEUE, parent=parent.id, unit=f"u/{at}") for at in range(n)])
    return Plan(submitters=0, each=n, shared=0, parent=parent.id)


async def _assert_whole_gangs(store: JobStore, plan: Plan) -> None:
    """Every unit was assigned once under each token, and with all the others of its gang."""
    units = [found for found in await store.audit(limit=1000) if found.job.is_unit]
    assert [found.job.status for found in units] == ["succeeded"] * plan.each
    given = [(found.job.id, event) for found in units for event in found.events if event.to == "dispatched"]
    assigned = Counter((unit_id, event.token) for unit_id, event in given)
    assert set(assigned.values()) == {1}, "a unit was assigned twice under one token"
    assert all(found.job.token == sum(unit == found.job.id for unit, _ in assigned) for found in units)
    gangs = {event.details or "" for _, event in given}
    members = [(unit_id, token) for gang in gangs for unit_id, token in json.loads(gang)["gang"].items()]
    assert sorted(members) == sorted(assigned), "a gang was assigned in part"
    assert len({event.actor for _, event in given}) > 1, "only one of them ever led"
    assert await store.check() == []


async def test_leaders_of_one_loop_assign_whole_gangs(adapter: Adapter, tmp_path: Path) -> None:
    store = await open_store(await adapter.ready(tmp_path))
    plan = await _with_units(store, 24)
    await asyncio.gather(*(Leader(store, f"leader-{n}", plan).run() for n in range(3)))
    await _assert_whole_gangs(store, plan)
    await store.close()


@pytest.mark.slow
async def test_leaders_in_processes_assign_whole_gangs(adapter: Adapter, tmp_path: Path) -> None:
    if not adapter.persistent:
        pytest.skip(f"a {adapter.name} store belongs to one process")
    url = adapter.at(tmp_path)
    store = await open_store(url)
    plan = await _with_units(store, 240 // adapter.slow)
    await actors.in_processes(url, plan, tmp_path, workers=0, leaders=3)
    await _assert_whole_gangs(store, plan)
    await store.close()


# -- the checker itself: it must see what is wrong ------------------------------------------------------------------


def _entry(began: float, what: str, *, job: str = "j", token: int = 0, outcome: str = "applied", **more: str) -> Entry:
    return Entry(began, began + 0.5, "someone", what, job, token, outcome, **more)  # type: ignore[arg-type]


_MADE = _entry(0, "insert", outcome="created")
_FIRST = _entry(1, "claim", token=1)
_RIGHT = [_MADE, _FIRST, _entry(2, "complete", token=1), _entry(3, "again", token=1, outcome="already_applied")]
_DONE = Ended("j", "succeeded", 1, 1)


def test_a_right_history_has_no_wrongs() -> None:
    assert wrongs(_RIGHT, [_DONE], {}) == []


@pytest.mark.parametrize(
    ("history", "ended", "wrong"),
    [
        (_RIGHT, [], "is lost"),
        (_RIGHT, [_DONE, Ended("k", "pending", 0, 0)], "nobody was told of it"),
        ([*_RIGHT, _MADE], [_DONE], "not created exactly once"),
        ([*_RIGHT, _FIRST], [_DONE], "token 1 was given out twice"),
        ([*_RIGHT, _entry(4, "claim", token=3)], [_DONE], "its tokens are [1, 3]"),
        ([*_RIGHT, _entry(1.2, "claim", token=2)], [_DONE], "claimed under token 2 while it was held under 1"),
        ([*_RIGHT, _entry(4, "complete", token=1)], [_DONE], "completed 2 times"),
        (_RIGHT, [Ended("j", "succeeded", 1, 2)], "2 by the events"),
        (_RIGHT, [Ended("j", "pending", 1, 1)], "was completed"),
        ([_MADE, _FIRST, _entry(2, "reap", token=1), _entry(3, "claim", token=2), _entry(4, "complete", token=1)],
         [Ended("j", "succeeded", 2, 1)], "under an old token"),
        ([*_RIGHT, _entry(3, "again", token=1, outcome="conflict")], [_DONE], "sent again was answered conflict"),
        ([_MADE, _FIRST, _entry(2, "complete", token=1, outcome="stale")], [_DONE], "nobody took it away"),
        ([*_RIGHT, _entry(2, "complete", token=1, outcome="missing")], [_DONE], "completion was answered missing"),
    ],
)  # fmt: skip
def test_a_wrong_history_is_seen(history: History, ended: list[Ended], wrong: str) -> None:
    assert wrong in "; ".join(wrongs(history, ended, {}))


def test_a_limit_that_was_exceeded_is_seen() -> None:
    history = [_entry(n / 10, "claim", job=f"j{n}", token=1, key="k") for n in range(3)]
    history += [_entry(2 + n / 10, "complete", job=f"j{n}", token=1, key="k") for n in range(3)]
    assert any("3 jobs were held at once" in wrong for wrong in wrongs(history, [], {"k": 2}))
    assert not any("held at once" in wrong for wrong in wrongs(history, [], {"k": 3}))
