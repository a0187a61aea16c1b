"""A server that goes away and comes back, behind the live side: it is told, and all goes on where it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mainstay.control import Control
from mainstay.stores import open_store
from servers.proxy import Proxy
from tests.places import place
from tests.web.conftest import serving
from tests.web.live.listening import listening


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["redis", "postgresql"])
async def test_a_store_that_goes_away_and_comes_back_is_told_and_no_event_is_missed(kind: str, tmp_path: Path) -> None:
    url = place(kind, tmp_path)
    beside = await open_store(url)
    control = Control(beside)
    with Proxy.before(url) as proxy:
        async with serving({"main": f"{proxy.url}&retries=1"}, snapshot_s=0.05, ready_s=0.5) as server:
            made = await control.jobs.submit("send")
            async with (
                listening(server.app, "/api/v1/stream") as store,
                listening(server.app, f"/api/v1/jobs/{made.id}/stream") as job,
                listening(server.app, "/api/v1/jobs/stream") as jobs,
            ):
                assert (await store.next("snapshot")).data["up"]
                seen = [(await job.next("event")).id]
                await jobs.next("page")
                proxy.refuse()
                proxy.cut()
                await control.operations.set_priority(made.id, 5, actor="ann")
                while (away := await store.next("snapshot")).data["up"]:
                    pass
                assert away.data["error"]
                for stream in (job, jobs):
                    assert (await stream.next("trouble")).data["detail"]
                while (await server.client.get("/readyz")).status_code == 200:
                    # answered of what is remembered: the store has not answered by that
                    for path in ("/", "/api/v1/snapshot", "/api/v1/stores"):
                        assert (await server.client.get(path)).status_code == 200
                    await asyncio.sleep(0.01)
                assert (await server.client.get("/livez")).status_code == 200
                proxy.accept()
                while not (await store.next("snapshot")).data["up"]:
                    pass
                assert (await server.client.get("/readyz")).status_code == 200
                assert (await jobs.next("page")).data["jobs"][0]["priority"] == 5
                await control.operations.cancel(made.id, actor="ann")
                seen += [told.id for told in await job.rest() if told.event == "event"]
    assert seen == ["1", "2", "3"]
    await beside.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["redis", "postgresql"])
async def test_requests_to_a_store_that_hangs_are_given_up_and_go_on_when_it_does(kind: str, tmp_path: Path) -> None:
    with Proxy.before(place(kind, tmp_path)) as proxy:
        store = await open_store(proxy.url)
        async with serving(store=store, answer_s=0.2) as server:
            assert (await server.client.get("/api/v1/jobs")).status_code == 200
            proxy.stall()
            for _ in range(20):  # more than there are connections to it
                answer = await server.client.get("/api/v1/jobs")
                assert (answer.status_code, answer.json()["type"]) == (503, "store_error")
            assert (await server.client.get("/jobs")).status_code == 503
            proxy.flow()
            while (await server.client.get("/api/v1/jobs")).status_code != 200:
                pass
