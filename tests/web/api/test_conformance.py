"""What is done through the API is seen through the library, and the other way round; on a server's store, too."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mainstay.control import Completion, Control
from mainstay.control.json_view import event_view, job_view, value_of
from mainstay.stores import open_store
from mainstay.web.api.routes import PREFIX
from tests import places
from tests.web.conftest import serving


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return places.place("postgresql", tmp_path, reusable=True)


async def test_two_programs_one_over_http_and_one_without_see_the_same(url: str) -> None:
    async with serving({"main": url}) as server:
        library = Control(await open_store(url), rng=random.Random(1))
        client = server.client
        try:
            body = {"name": "mail.send", "payload": {"n": 1}, "queue": "mail", "key": "order-17"}
            sent = (await client.post(f"{PREFIX}/jobs", json=body)).json()["id"]
            again = await library.jobs.submit("mail.send", {"n": 1}, queue="mail", key="order-17")
            assert (again.id, again.created) == (sent, False)
            session = await library.claims.open_session(worker="w")
            (job,) = await library.claims.claim(["mail"], session.id, 1)
            await library.attempts.complete([Completion(job, result={"sent": True})])
            result = (await client.get(f"{PREFIX}/jobs/{sent}/result", params={"wait": "10s"})).json()
            assert (result["status"], result["result"]) == ("succeeded", {"sent": True})

            made = await library.jobs.submit("b", queue="mail")
            cancelled = await client.post(f"{PREFIX}/jobs/{made.id}/cancel", json={"reason": "sent by mistake"})
            assert (await library.jobs.get(made.id)).status == cancelled.json()["status"] == "cancelled"

            for job_id in (sent, made.id):
                shown = (await client.get(f"{PREFIX}/jobs/{job_id}")).json()
                assert shown == _plain(job_view(await library.jobs.get(job_id), value_of))
                trail = (await client.get(f"{PREFIX}/jobs/{job_id}/events")).json()["events"]
                assert trail == [_plain(event_view(event)) for event in await library.jobs.events(job_id)]
                story = (await client.get(f"{PREFIX}/jobs/{job_id}/story")).json()
                assert story["lines"] == await library.jobs.story(job_id)
            listed = (await client.get(f"{PREFIX}/jobs")).json()["jobs"]
            assert [job["id"] for job in listed] == [made.id, sent]
            await client.post(f"{PREFIX}/queues/mail/pause", json={"reason": "stocktaking"})
            (queue,) = await library.store.queues()
            assert (queue.paused, queue.reason) == (True, "stocktaking")
        finally:
            await library.store.close()


async def test_no_number_is_too_large_for_any_store(url: str) -> None:
    async with serving({"main": url}) as server:
        made = await server.control.jobs.submit("a")
        for after in ("999999999", "1000000000", "2147483648", "9223372036854775808"):
            answer = await server.client.get(f"{PREFIX}/jobs/{made.id}/events", params={"after": after})
            assert answer.status_code == (200 if int(after) <= 1_000_000_000 else 422)
            headers = {"Last-Event-ID": after}
            if int(after) >= 1_000_000_000:
                stream = await server.client.get(f"{PREFIX}/jobs/{made.id}/stream", headers=headers)
                assert stream.status_code == 422
        assert await server.control.jobs.events(made.id, after=2**70) == []


@pytest.mark.parametrize("text", ["a\x00b", "%", "_", "'", "\\", "\ufffd", "ß", "💩"])
async def test_a_search_takes_any_text_as_it_is(url: str, text: str) -> None:
    async with serving({"main": url}) as server:
        await server.control.jobs.submit("a")
        answer = await server.client.get(f"{PREFIX}/jobs", params={"text": text})
        if text.isprintable():
            assert answer.json()["jobs"] == []
        else:
            assert answer.status_code == 422


def _plain(data: dict[str, object]) -> dict[str, object]:
    """As it comes out of JSON."""
    import msgspec

    found: dict[str, object] = msgspec.json.decode(msgspec.json.encode(data))
    return found
