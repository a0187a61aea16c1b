"""The client for programs without an event loop, over a real socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstay import Client
from mainstay.client import EndMessage, EventView, Tries
from mainstay.client.transport import server_address
from mainstay.errors import InvalidInput, JobFailed, ServerUnreachable, WaitTimeout
from mainstay.load.target.certificate import self_signed
from mainstay.model import ErrorInfo
from tests.web.client.conftest import work
from tests.web.client.servers import Here, served


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    with served() as found:
        yield found


@pytest.fixture
def client(here: Here) -> Iterator[Client]:
    with Client(here.url) as made:
        yield made


def test_a_job_goes_its_way(client: Client, here: Here) -> None:
    handle = client.submit("a", {"n": 1}, queue="way")
    assert (handle.created, handle.status()) == (True, "pending")
    with pytest.raises(WaitTimeout):
        handle.result("10ms")

    here.run(work(here.control, "way", result={"n": 2}))

    assert handle.result() == {"n": 2}
    assert handle.wait().status == "succeeded"
    assert [event.to for event in handle.events()][-1] == "succeeded"
    assert handle.story() == here.run(here.control.jobs.story(handle.id))


def test_a_wait_ends_when_the_job_does(client: Client, here: Here) -> None:
    handle = client.submit("a", queue="slow", retries=0)
    failing = work(here.control, "slow", error=ErrorInfo(type="E", message="m", code="c"))
    later = threading.Thread(target=lambda: here.run(failing))
    later.start()

    with pytest.raises(JobFailed, match="E: m"):
        handle.result("60s")
    later.join()


def test_a_group_goes_its_way(client: Client, here: Here) -> None:
    made = client.group([client.job("a", queue="team") for _ in range(3)], then=client.job("sum", queue="team"))
    assert (made.then.status(), len(made.members)) == ("scheduled", 3)

    here.run(work(here.control, "team"))

    assert made.then.status() == "pending"


def test_many_jobs_are_submitted_found_and_cancelled(client: Client) -> None:
    made = client.submit_many((client.job("a", queue="many") for _ in range(30)), chunk=7)

    assert {job.id for job in client.jobs.find(queue="many")} == {handle.id for handle in made}
    assert client.jobs.act("cancel", queue="many").done == 30
    assert client.queues.get("many").counts == {"cancelled": 30}
    assert client.stats().queues["many"].counts == {"cancelled": 30}


def test_a_bad_job_among_many_is_named_by_its_place_in_the_list_and_the_error_says_what_is_stored(
    client: Client,
) -> None:
    with pytest.raises(InvalidInput) as refused:
        client.submit_many([*(client.job("a", queue="half") for _ in range(5)), client.job("a", priority=500)], chunk=3)

    assert refused.value.field == "jobs[5].priority"
    assert refused.value.__notes__ == ["the 3 jobs before this chunk are stored; submit the rest from there"]
    assert client.stats().queues["half"].counts == {"pending": 3}


def test_a_job_can_be_followed_while_it_goes_on(client: Client, here: Here) -> None:
    handle = client.submit("a", queue="live")
    seen: list[object] = []
    for news in handle.stream():
        seen.append(news)
        if isinstance(news, EventView) and news.to == "pending":
            here.run(work(here.control, "live", result=1))

    assert isinstance(seen[-1], EndMessage)
    assert [each.seq for each in seen if isinstance(each, EventView)] == [event.seq for event in handle.events()]


def test_a_store_and_a_list_can_be_watched(client: Client) -> None:
    assert next(iter(client.stream())).store == "main"
    handle = client.submit("a", queue="watched")
    assert next(iter(client.jobs.stream(queue="watched"))).ids == (handle.id,)


def test_a_server_that_is_not_there_is_told_apart_from_one_that_refuses() -> None:
    with served() as gone:
        url = gone.url
    with (
        Client(url, tries=Tries(most=2, base_s=0.0)) as client,
        pytest.raises(ServerUnreachable, match="GET /stats was not answered in 2 attempts"),
    ):
        client.stats()


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    import ssl

    both = asyncio.run(self_signed(tmp_path, "127.0.0.1"))
    with served(tls_cert=str(both)) as here:
        assert here.url.startswith("https://")
        with (
            Client(here.url, tries=Tries(most=1)) as client,
            pytest.raises(ServerUnreachable, match="certificate verify failed"),
        ):
            client.stats()
        with Client(here.url, verify=ssl.create_default_context(cafile=both)) as client:
            assert client.stores()[0].name == "main"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "set MAINSTAY_URL"),
        ("sqlite:///jobs.db", "is not a server URL"),
        ("http://", "is not a server URL"),
        ("http://ann:hunter2@127.0.0.1", "give the address alone"),
        ("http://127.0.0.1/?token=hunter2", "give the address alone"),
    ],
)
def test_what_is_no_address_is_refused_without_its_secrets(url: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as caught:
        Client(url)

    assert "hunter2" not in str(caught.value)


def test_a_token_is_not_sent_where_others_can_read_it() -> None:
    with pytest.raises(InvalidInput, match="the token could be read on its way to jobs.example") as caught:
        Client("http://jobs.example", token="hunter2")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidInput, match="is not a token") as caught:
        Client("https://jobs.example", token="hunter2\r\nX: y")
    assert "hunter2" not in str(caught.value)
    for url in ("http://127.0.0.1:1", "http://localhost", "http://[::1]", "https://jobs.example"):
        assert "hunter2" not in repr(Client(url, token="hunter2"))


def test_address_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTAY_URL", "https://jobs.example/below/")
    monkeypatch.setenv("MAINSTAY_TOKEN", "hunter2")

    wire = server_address(None, token=None, insecure=False, timeout_s=1.0)

    assert (wire.url, wire.headers["Authorization"]) == ("https://jobs.example/below", "Bearer hunter2")
    assert repr(wire) == "ServerAddress('https://jobs.example/below')"
