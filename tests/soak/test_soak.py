"""A small soak, with all its parts: a server, a fleet, kills, and an account that sees what is wrong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mainstay.stores import open_store
from mainstay.testing import VirtualClock
from soak import report
from soak.account import Account, _count, taken
from soak.run import Plan, Soak, soak
from tests.conformance.world import World


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["postgres", "redis"])
async def test_a_few_thousand_jobs_outlive_the_killing_of_engines_and_supervisors(store: str, tmp_path: Path) -> None:
    plan = Plan(jobs=4000, engines=4, kill_every_s=2, most_kills=4)
    seen: list[tuple[str, int, int]] = []
    found = await soak(store, plan, lambda what, n, of: seen.append((what, n, of)))

    assert found.account.examples == []
    assert found.right
    assert sum(found.kills.values()) > 0
    assert (found.account.jobs, found.account.lost, found.account.doubled) == (4000, 0, 0)
    assert {what for what, _, _ in seen} == {"working", "accounting"}
    assert report.load(report.save(found, tmp_path).parent) == [found]


async def test_the_account_sees_lost_jobs_a_doubled_one_and_one_nobody_was_told_of() -> None:
    store = await open_store("memory:", clock=VirtualClock())
    world = World(store, store.clock)  # type: ignore[arg-type]
    await world.open("s1")
    right, waiting, stranger = [await world.submit(queue=str(n)) for n in range(3)]
    for job in (right, stranger):
        [claimed] = await world.claim(queues=[job.queue])
        await world.move(claimed, "succeeded", holder="s1")

    account = await taken(store, {right.id, waiting.id, "gone"}, lambda n: None)

    assert (account.jobs, account.succeeded, account.lost, account.unexpected) == (3, 2, 2, 1)
    assert not account.right
    [first, *_] = await store.audit()
    doubled = Account()
    _count(doubled, msgspec.structs.replace(first, events=[*first.events, first.events[-1]]), True)
    assert (doubled.doubled, doubled.right) == (1, False)
    assert any(waiting.id in example for example in account.examples)
    await store.close()


async def test_a_store_with_jobs_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    store = await open_store(url)
    await World(store, store.clock).submit()  # type: ignore[arg-type]
    await store.close()

    with pytest.raises(ValueError, match="has jobs already"):
        await soak(url, Plan(jobs=1), lambda what, n, of: None)


def test_the_figures_are_said_for_each_store_and_nothing_else_is_called_right() -> None:
    found = Soak(
        at="2026-01-01",
        store="redis",
        server="Redis 7.0",
        durability="lost after a second.",
        machine="2 cores",
        load_before=0.1,
        plan=Plan(jobs=10),
        took_s=2.0,
        drained=True,
        account=Account(jobs=10, succeeded=10),
    )
    wrong = [
        msgspec.structs.replace(found, account=Account(jobs=10, succeeded=10, doubled=1)),
        msgspec.structs.replace(found, account=Account(jobs=9, succeeded=9)),
        msgspec.structs.replace(found, drained=False),
    ]

    assert found.right
    assert not any(each.right for each in wrong)
    assert ["jobs a second, kills included", "5"] in report.lines([found])
    assert "Redis, measured on 2026-01-01: 2 cores, load average before 0.1. Lost after a second." in report.about(
        [found]
    )
