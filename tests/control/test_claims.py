"""Sessions and claims: how they are named, and what is refused at the door."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from mainstay.control import Control
from mainstay.errors import InvalidInput, SessionLost
from mainstay.model import Settings
from mainstay.stores import StoreProxy

from .conftest import Bench


async def test_a_session_id_tells_its_worker_when_the_session_is_long_gone(bench: Bench) -> None:
    session = await bench.worker.claims.open_session(worker="w1")
    job_id = (await bench.control.jobs.submit("t")).id
    await bench.worker.claims.claim(["default"], session.id, 1)
    await bench.worker.claims.close_session(session.id)
    await bench.control.sweeper.sweep()
    await bench.control.sweeper.sweep()  # the first takes its job back, the next forgets it

    assert await bench.store.sessions() == []
    assert any("w1." in line for line in await bench.control.jobs.story(job_id))


async def test_every_session_has_an_id_of_its_own(bench: Bench) -> None:
    named = [await bench.worker.claims.open_session(worker="w1") for _ in range(3)]
    nameless = await bench.worker.claims.open_session()

    assert len({session.id for session in named}) == 3
    assert all(session.id.startswith("w1.") and session.worker == "w1" for session in named)
    assert nameless.id.startswith("session.")


async def test_a_session_says_on_which_host_it_is(bench: Bench) -> None:
    here, elsewhere = await bench.worker.claims.open_session(), await bench.worker.claims.open_session(host="elsewhere")

    assert (here.host, elsewhere.host) == (socket.gethostname(), "elsewhere")


@pytest.mark.parametrize("worker", ["w", "Mail_worker-1.eu", "9" * 64])
async def test_a_worker_may_be_called_so(bench: Bench, worker: str) -> None:
    session = await bench.worker.claims.open_session(worker=worker)

    assert session.id.startswith(f"{worker}.")


@pytest.mark.parametrize("worker", ["a/b", "../w", "a b", "ü", "w" * 65, "a\n", "a\0", 5])
async def test_a_worker_name_that_cannot_be_a_file_name_is_refused(bench: Bench, worker: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^worker: .*1 to 64 .*letters, digits"):
        await bench.worker.claims.open_session(worker=worker)
    assert await bench.store.sessions() == []


@pytest.mark.parametrize("lease_s", [0, -1, 1.9, 2.0, float("nan"), float("inf"), "8s", True])
async def test_a_lease_that_a_live_session_could_not_keep_is_refused(bench: Bench, lease_s: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^lease_s: .*heartbeat \(2s\)"):
        await bench.worker.claims.open_session(lease_s=lease_s)
    assert await bench.store.sessions() == []


async def test_a_lease_longer_than_the_heartbeat_is_taken(bench: Bench) -> None:
    quick = Control(bench.store, settings=Settings.of(heartbeat="100ms", lease="1s"))

    assert (await quick.claims.open_session(lease_s=0.2)).lease_s == 0.2
    assert (await quick.claims.open_session()).lease_s == 1.0


async def test_a_lost_session_is_told_to_open_a_new_one(bench: Bench) -> None:
    with pytest.raises(
        SessionLost, match="^session nope was declared dead, or never opened; open a new one and claim again"
    ):
        await bench.worker.claims.claim(["q"], "nope", 1)


@pytest.mark.parametrize("n", [0, -1, 1.5, True, None])
async def test_a_claim_of_less_than_one_job_is_refused(bench: Bench, n: Any) -> None:
    session = await bench.session()

    with pytest.raises(InvalidInput, match="^n: .* is not a whole number above zero"):
        await bench.worker.claims.claim(["default"], session.id, n)


@pytest.mark.parametrize("queues", ["default", b"default", [], None, 5])
async def test_queues_that_are_no_list_of_names_are_refused(bench: Bench, queues: Any) -> None:
    session = await bench.session()

    with pytest.raises(InvalidInput, match="^queues: .* is not a list of queue names"):
        await bench.worker.claims.claim(queues, session.id, 1)


async def test_a_session_in_the_place_of_its_id_is_refused_with_the_fix(bench: Bench) -> None:
    session: Any = await bench.session()

    with pytest.raises(InvalidInput, match=r"^session: .*Session.* is not a session id; pass its id"):
        await bench.worker.claims.claim(["default"], session, 1)
    with pytest.raises(InvalidInput, match=r"^session: "):
        await bench.worker.claims.close_session(session)
    with pytest.raises(InvalidInput, match=r"^sessions\[0\]: "):
        await bench.worker.claims.beat([session])


async def test_a_text_in_the_place_of_a_list_of_sessions_is_not_taken_apart(bench: Bench) -> None:
    session = await bench.session()

    with pytest.raises(InvalidInput, match=r"^sessions: .* is not a list of session ids"):
        await bench.worker.claims.beat(session.id)


@pytest.mark.parametrize("url", ["redis://cache/0", "valkeys://cache", "s3://bucket/jobs", "file:///srv/jobs"])
async def test_a_store_that_cannot_place_work_refuses_a_node_by_field(bench: Bench, url: str) -> None:
    store = StoreProxy(bench.store)
    store.url = url
    with pytest.raises(InvalidInput, match=r"^node: .* cannot place work on nodes; use SQLite or PostgreSQL"):
        await Control(store, settings=Settings()).claims.open_session(node="n1")
    assert await bench.store.sessions() == []
