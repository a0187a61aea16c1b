"""Submitting within a transaction, where there is none to be had. For the rest: tests/stores/postgres."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay import App
from mainstay.errors import InvalidInput
from mainstay.testing import MemoryStore


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{folder}/jobs.db", "redis://127.0.0.1:1/0"])
def test_a_store_without_transactions_of_users_refuses_it(url: str, tmp_path: Path) -> None:
    app = App(url.format(folder=tmp_path))

    @app.task(name="send")
    def send(to: str) -> None: ...

    with pytest.raises(InvalidInput, match="only with a PostgreSQL store, and this one is"):
        send.within(object())
    with pytest.raises(InvalidInput, match="submit without the connection"):
        app.submit_many_sync([send.job("a")], connection=object())
    with pytest.raises(InvalidInput, match="submit without the connection"):
        app.group_sync([send.job("a")], then=send.job("b"), connection=object())


def test_a_store_that_stands_in_for_the_real_one_is_the_one_that_counts() -> None:
    app = App("postgresql://nobody@127.0.0.1:1/none")

    @app.task(name="send")
    def send(to: str) -> None: ...

    with app.using(MemoryStore()), pytest.raises(InvalidInput, match="this one is memory:"):
        send.within(object())


def test_a_password_of_the_store_is_not_shown() -> None:
    app = App("redis://ann:secret@127.0.0.1:1/0")

    @app.task(name="send")
    def send(to: str) -> None: ...

    with pytest.raises(InvalidInput) as refused:
        send.within(object())
    assert "secret" not in str(refused.value)
