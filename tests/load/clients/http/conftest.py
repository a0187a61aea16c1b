from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainstay.load.clients.http import HTTPClient
from mainstay.load.clients.network import Network


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
async def http(network: Network) -> AsyncIterator[HTTPClient]:
    client = HTTPClient(network)
    yield client
    await client.close()
