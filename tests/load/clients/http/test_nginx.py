"""Against a server that others use, too."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import servers
from mainstay.load.clients.http import HTTPClient
from mainstay.load.clients.network import Network, Tls
from servers.nginx import ANSWER, SMALL


@pytest.fixture(scope="module")
def nginx() -> Iterator[servers.Nginx]:
    with servers.folder("mainstay-http-") as place:
        server = servers.Nginx(place)
        yield server
        server.stop()


async def test_what_was_sent_and_answered_is_what_the_server_counts(nginx: servers.Nginx) -> None:
    network = Network(tls=Tls(ca=str(nginx.certificate)))
    before = nginx.status().requests

    async def user(number: int) -> None:
        http = HTTPClient(network)
        url = nginx.tls_url if number % 2 else nginx.url
        for _ in range(10):
            assert (await http.get(url())).content == SMALL
            assert (await http.post(url("/json"), json={"n": number})).text() == ANSWER
            missing = await http.get(url("/none"), expect={404})
            assert (missing.status, missing.ok) == (404, True)
            head = await http.head(url())
            assert (head.content, head.headers["content-length"]) == (b"", str(len(SMALL)))
        await http.close()

    await asyncio.gather(*map(user, range(10)))

    # the last count counts itself
    assert nginx.status().requests - before - 1 == network.sent == network.answered == 400
    assert network.aborted == 0


async def test_a_server_that_was_restarted_is_called_again(nginx: servers.Nginx, http: HTTPClient) -> None:
    await http.get(nginx.url())
    nginx.kill()
    nginx.start()

    assert (await http.get(nginx.url())).content == SMALL
