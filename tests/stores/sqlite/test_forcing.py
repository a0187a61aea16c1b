"""What is forced to the disk, counted at the file system's door."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from mainstay.control import Completion, Control
from mainstay.stores import open_store


class _CountingFile(apsw.VFSFile):
    syncs = 0

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        type(self).syncs += 1
        super().xSync(flags)


class _CountingVFS(apsw.VFS):
    def __init__(self, usual: str) -> None:
        self._usual = usual
        super().__init__("counting", usual, makedefault=True)

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _CountingFile(self._usual, name, flags)


@pytest.fixture
def counting() -> Iterator[type[_CountingFile]]:
    usual = apsw.vfs_names()[0]
    vfs = _CountingVFS(usual)
    yield _CountingFile
    apsw.set_default_vfs(usual)
    vfs.unregister()


@pytest.fixture
async def control(counting: type[_CountingFile], tmp_path: Path) -> AsyncIterator[Control]:
    store = await open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield Control(store)
    await store.close()


async def test_submits_and_endings_are_forced_and_claims_and_beats_are_not(
    control: Control, counting: type[_CountingFile]
) -> None:
    async def forced(what: Any) -> tuple[Any, bool]:
        before = counting.syncs
        answer = await what
        return answer, counting.syncs > before

    session = await control.claims.open_session()
    _, submit = await forced(control.jobs.submit("mail.send", {}))
    jobs, claim = await forced(control.claims.claim(["default"], session.id, 1))
    _, beat = await forced(control.claims.beat([session.id], [control.claims.started(jobs[0])]))
    _, complete = await forced(control.attempts.complete([Completion(jobs[0])]))

    assert (submit, claim, beat, complete) == (True, False, False, True)


async def test_a_claim_with_a_mark_is_forced(control: Control, counting: type[_CountingFile]) -> None:
    """Its claimer is on another machine: after a power cut here it would still run the job, which is pending again."""
    session = await control.claims.open_session()
    await control.jobs.submit("mail.send", {})
    before = counting.syncs
    assert len(await control.store.claim(["default"], session.id, 1, mark="a")) == 1
    assert counting.syncs > before
