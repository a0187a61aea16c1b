"""The scripts: each may be carried out twice, and the server may forget them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import pytest

from mainstay.errors import StoreError
from mainstay.lifecycle import Move
from mainstay.model import Progress
from mainstay.stores import ClaimReport
from mainstay.stores.redis import RedisStore, scripts
from mainstay.stores.redis.scripts import PARTS, script
from tests.conformance.world import World
from tests.stores.redis.conftest import Plain

FINISH = Move(to="finalizing", reason="all units are settled")


def carry_out_twice(store: RedisStore) -> None:
    """As if the answer to every call was lost, and the call sent again."""
    server = store._base.server
    once = server.call

    async def twice(work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def both(client: Any) -> Any:
            await work(client)
            return await work(client)

        return await once(both)

    server.call = twice  # type: ignore[method-assign]


def test_every_file_belongs_to_a_script() -> None:
    there = {entry.name.removesuffix(".lua") for entry in files("mainstay.stores.redis").joinpath("lua").iterdir()}
    assert there == {"prelude", *PARTS, *(part for parts in PARTS.values() for part in parts)}


@pytest.mark.parametrize("name", PARTS)
def test_a_script_is_one_that_the_server_can_read(name: str, plain: Plain) -> None:
    text, sha = script(name)
    assert plain.client.script_load(text) == sha


async def test_a_server_that_forgot_the_scripts_is_told_again(world: World, plain: Plain) -> None:
    await world.open("s1")
    plain.client.script_flush()
    job = await world.running()
    plain.client.script_flush()
    assert (await world.move(job, "succeeded", holder="s1")).outcome == "applied"


async def test_every_call_may_be_carried_out_twice(world: World) -> None:
    store = world.store
    assert isinstance(store, RedisStore)
    carry_out_twice(store)
    await world.open("s1")
    made = await store.insert([world.new(), world.new(key="once"), world.new(unique_key="u"), world.new(delay_s=1)])
    assert [each.created for each in made] == [True] * 4
    world.clock.advance(1)

    jobs = await world.claim(n=3)
    assert [job.id for job in jobs] == [each.id for each in made[:3]]
    [late] = await world.claim(n=3)
    assert await world.claim(n=3) == []
    assert await store.report([ClaimReport(job_id=late.id, session="s1", token=1, started_ms=5)]) == [True]
    reports = [ClaimReport(job_id=late.id, session="s1", token=1, progress=Progress(done=1), checkpoint=b"\xff")]
    assert (await store.beat(["s1"], reports))[0].known
    late = await world.row(late)
    answers = await store.apply([world.change(job, "succeeded", holder="s1") for job in (*jobs, late)])

    assert {answer.outcome for answer in answers} == {"applied"}
    for job in jobs:
        assert await world.story(job) == ["pending", "running", "succeeded"]
    assert await world.story(late) == ["scheduled", "pending", "running", "succeeded"]
    assert (await world.row(late)).starts == 1
    await world.assert_sound()


async def test_a_cascade_may_be_carried_out_twice(world: World) -> None:
    store = world.store
    assert isinstance(store, RedisStore)
    await world.open("s1")
    first = await world.running()
    then = await world.submit(queue="then", after=[first])
    parent = await world.running(queue="parents")
    await store.insert([world.new(queue="units", parent=parent.id, unit="1")])
    [unit] = await world.claim(queues=["units"])
    carry_out_twice(store)

    await store.apply(
        [
            world.change(first, "succeeded", holder="s1", spawn=(world.new(queue="spawned"),)),
            world.change(unit, "succeeded", holder="s1", on_last=FINISH),
        ]
    )

    assert await world.story(then) == ["scheduled", "pending"]
    assert await world.story(parent) == ["pending", "running", "finalizing"]
    assert len(await world.claim(n=5, queues=["spawned"])) == 1
    await world.assert_sound()


async def test_more_rows_than_a_command_takes_arguments_go_in_and_out(world: World) -> None:
    await world.open("s1")
    last = world.new(queue="then")
    members = [world.new(group=last.job.id, priority=at % 3) for at in range(4_500)]
    then = world.new(queue="then", after=[new.job for new in members])
    await world.store.insert([*members, then])
    taken = await world.claim(n=5_000)
    assert len(taken) == 4_500
    answers = await world.store.apply([world.change(job, "succeeded", holder="s1") for job in taken])
    assert {answer.outcome for answer in answers} == {"applied"}
    assert await world.story(then.job) == ["scheduled", "pending"]
    assert len(await world.store.awaited(then.job.id)) == 4_500


#: the parts and scripts that only gather what is to be written
GATHERING = ("apply", "change", "claim", "commit", "entry", "insert", "look", "report", "reports", "unclaim")
READS = {"GET", "HGET", "HMGET", "SCARD", "SMEMBERS", "SISMEMBER", "ZRANGE", "LINDEX", "EXISTS", "MGET", "TIME"}


@pytest.mark.parametrize("name", ["prelude", *GATHERING])
def test_nothing_is_written_but_by_the_flush_at_the_end(name: str) -> None:
    """A script that fails half way is not undone, so it must not have begun."""
    text = files("mainstay.stores.redis").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
    named = set(re.findall(r"\bcall\('(\w+)'", text))
    others = re.findall(r"\bcall\((?!')[^)]*\)", text)
    assert named <= READS
    # the questions that a decision asked before, and asks again
    assert others == (["call(command[1], P .. command[2], unpack(command, 3)"] if name == "commit" else [])


async def test_a_script_that_fails_at_the_end_has_written_nothing(
    world: World, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.open("s1")
    first = await world.running()
    await world.submit(queue="then", after=[first], unique_key="u")
    ready = await world.submit(key="k")
    before = await world.dump()
    named = {name for name in plain.names() if not name.startswith(("w:", "ear:"))}

    def broken(name: str) -> tuple[str, str]:
        text, _ = script(name)
        at_the_end = text.replace("\nlocal function flush()\n", "\nlocal function flush()\n  error('it fails')\n")
        return at_the_end, hashlib.sha1(at_the_end.encode(), usedforsecurity=False).hexdigest()

    monkeypatch.setattr(scripts, "script", broken)
    report = ClaimReport(job_id=first.id, session="s1", token=1, started_ms=5, checkpoint=b"x")
    calls: list[Awaitable[object]] = [
        world.store.insert([world.new(key="n", unique_key="n", after=[first])]),
        world.claim(),
        world.move(ready, "cancelled"),
        world.move(first, "failed", holder="s1", spawn=(world.new(key="s"),)),
        world.store.report([report]),
        world.store.delete([ready.id], actor="ann", reason="tidy"),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="it fails"):
            await call
    monkeypatch.undo()

    assert await world.dump() == before
    assert {name for name in plain.names() if not name.startswith(("w:", "ear:"))} == named
