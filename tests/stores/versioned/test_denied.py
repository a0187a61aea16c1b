"""A service that denies is no outage, and says which permission is missing; the key that was wrong is not said."""

from __future__ import annotations

import re

import pytest

from mainstay.errors import StoreError, StoreUnavailable
from mainstay.stores.versioned import open_versioned
from servers.azurite import azure_url
from tests.places import server_url


async def test_a_wrong_key_is_denied_by_every_call_and_in_no_message() -> None:
    url = re.sub(r"account_key=[^&]+", "account_key=d3Jvbmc%3D", azure_url(server_url("azurite"), "denied"))
    store = await open_versioned(url)

    for call in (
        lambda: store.get("a"),
        lambda: store.put("a", b"", "1"),
        lambda: store.create_if_absent("a", b""),
        lambda: store.delete("a", "1"),
        store.list_keys,
    ):
        with pytest.raises(StoreError, match="denies it .* Storage Blob Data Contributor") as told:
            await call()
        assert not isinstance(told.value, StoreUnavailable)
        assert "d3Jvbmc" not in str(told.value)
    await store.close()
