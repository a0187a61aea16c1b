"""What is made for people's data is made for its owner; what others can reach is reported, with what to do."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstay.load.stream import StreamOutput
from mainstay.load.target.certificate import self_signed
from mainstay.outputs import open_outputs
from mainstay.storage import private_files
from mainstay.storage.private_files import report_exposed
from mainstay.stores import open_store
from mainstay.stores.versioned import open_versioned
from mainstay.web.options import WebOptions
from mainstay.web.server import tls_context
from tests.load.report.runs import a_summary


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def open_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that everybody on the machine can enter."""
    monkeypatch.setattr(private_files, "_reported", set())
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    return folder


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def reached(folder: Path) -> list[str]:
    """What others can read, write or lock: what they have permissions for, in folders that they can enter."""
    found = []
    for path in sorted(folder.iterdir()):
        if mode(path) & 0o007:
            found.append(path.name)
            if path.is_dir() and mode(path) & 0o001:
                found += [f"{path.name}/{each}" for each in reached(path)]
    return found


@pytest.mark.parametrize("url", ["sqlite:///{}/jobs.db", "file:{}/jobs"])
async def test_nothing_of_a_new_store_is_for_others(
    open_folder: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(url.format(open_folder))
    try:
        await store.stats()
        assert list(open_folder.iterdir())
        assert reached(open_folder) == []
    finally:
        await store.close()
    assert reached(open_folder) == []
    assert "chmod" not in caplog.text


async def test_nothing_of_new_outputs_and_values_is_for_others(open_folder: Path) -> None:
    outputs = await open_outputs(f"file:{open_folder}/outputs")
    await outputs.close()
    for url in (f"file:{open_folder}/values", f"sqlite:///{open_folder}/values.db"):
        values = await open_versioned(url)
        await values.create_if_absent("a", b"1")
        await values.close()
    assert {"outputs", "values", "values.db"} <= {path.name for path in open_folder.iterdir()}
    assert reached(open_folder) == []


async def test_a_store_that_a_group_shares_stays_shared(open_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = open_folder / "jobs.db"
    path.touch()
    path.chmod(0o660)
    store = await open_store(f"sqlite:///{path}")
    await store.stats()
    found = {each.name: mode(each) for each in open_folder.iterdir()}
    await store.close()
    assert found["jobs.db"] == 0o660
    assert found["jobs.db-wal"] == 0o660
    assert found["jobs.db-mainstay"] == 0o770
    assert "chmod" not in caplog.text


async def test_a_store_that_others_can_read_is_reported_once_with_the_command_that_ends_it(
    open_folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = open_folder / "jobs.db"
    path.touch()
    path.chmod(0o644)
    (open_folder / "jobs.db-mainstay").mkdir(mode=0o755)
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        store = await open_store(f"sqlite:///{path}")
        await store.close()
    [said] = [record.getMessage() for record in caplog.records if "chmod" in record.getMessage()]
    assert said.startswith(f"others on this machine can reach the store {path}")

    command = said.partition("run: ")[2]
    subprocess.run(command, shell=True, check=True)
    monkeypatch.setattr(private_files, "_reported", set())
    caplog.clear()
    store = await open_store(f"sqlite:///{path}")
    await store.close()
    assert "chmod" not in caplog.text
    assert reached(open_folder) == []


def test_what_stands_in_a_private_folder_is_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "key.pem").touch(mode=0o644)
    assert not report_exposed("the TLS key", [tmp_path / "key.pem"])
    assert caplog.text == ""


async def test_a_recording_is_for_its_owner(open_folder: Path) -> None:
    recording = StreamOutput(open_folder / "run.ndjson")
    await recording.start(a_summary().header)
    assert reached(open_folder) == []
    await recording.stop(a_summary())


async def test_a_tls_key_that_others_can_read_is_reported(open_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = await self_signed(open_folder, "127.0.0.1")
    made.chmod(0o644)
    assert tls_context(WebOptions(tls_cert=str(made))) is not None
    assert f"can reach the TLS key {made}" in caplog.text
    assert f"run: chmod -R o-rwx {made}" in caplog.text
