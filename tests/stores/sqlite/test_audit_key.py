"""A file remembers which key its audit trail is sealed with."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.control import Control
from mainstay.control.check import check
from mainstay.errors import WrongAuditKey
from mainstay.stores import open_store


async def begun(path: Path, key: bytes | None) -> None:
    store = await open_store(f"sqlite:///{path}", audit_key=key)
    await Control(store).jobs.submit("mail.send")
    await store.close()


async def test_the_same_key_opens_the_file_and_its_trail_verifies(tmp_path: Path) -> None:
    await begun(tmp_path / "jobs.db", b"secret")
    store = await open_store(f"sqlite:///{tmp_path / 'jobs.db'}", audit_key=b"secret")
    assert (await check(store)).clean
    await store.close()


@pytest.mark.parametrize(
    ("first", "then", "advice"),
    [
        (b"secret", None, "none is set: set MAINSTAY_AUDIT_KEY"),
        (b"secret", b"other", "another one is set: set MAINSTAY_AUDIT_KEY"),
        (None, b"secret", "unset MAINSTAY_AUDIT_KEY"),
    ],
)
async def test_any_other_key_is_refused_with_advice(
    tmp_path: Path, first: bytes | None, then: bytes | None, advice: str
) -> None:
    await begun(tmp_path / "jobs.db", first)
    with pytest.raises(WrongAuditKey, match=advice):
        await open_store(f"sqlite:///{tmp_path / 'jobs.db'}", audit_key=then)


async def test_the_key_itself_is_not_in_the_file(tmp_path: Path) -> None:
    await begun(tmp_path / "jobs.db", b"correct horse battery")
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"correct horse" not in stored
