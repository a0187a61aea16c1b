"""What only a folder can do wrong."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mainstay.errors import (
    InvalidInput,
    RowDamaged,
    SchemaTooNew,
    StoreError,
    StoreLocked,
    StoreUnavailable,
    UnknownOption,
)
from mainstay.stores.versioned import open_versioned
from mainstay.stores.versioned.file import FileVersioned, _shard


async def test_no_two_names_differ_only_by_their_case(tmp_path: Path) -> None:
    store = FileVersioned(tmp_path / "values")
    for key in ("a/B", "A/b", "a/b", "A/B", "aB", "Ab"):
        assert await store.create_if_absent(key, key.encode())
    await store.close()

    names = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
    assert len({name.lower() for name in names}) == len(names)


async def test_a_folder_whose_disk_is_not_mounted_is_an_outage_and_not_an_absence(tmp_path: Path) -> None:
    store = FileVersioned(tmp_path / "values")
    version = str(await store.create_if_absent("a", b"x"))
    (tmp_path / "values").rename(tmp_path / "elsewhere")
    (tmp_path / "values").mkdir()

    for call in (
        store.get("a"),
        store.put("a", b"y", version),
        store.create_if_absent("b", b"y"),
        store.delete("a", version),
        store.list_keys(),
    ):
        with pytest.raises(StoreUnavailable, match="Is its disk mounted"):
            await call
    assert os.listdir(tmp_path / "values") == []

    (tmp_path / "values").rmdir()
    with pytest.raises(StoreUnavailable):
        await store.list_keys()
    (tmp_path / "elsewhere").rename(tmp_path / "values")
    assert await store.list_keys() == ["a"]
    await store.close()


async def test_what_a_killed_writer_left_is_removed_when_the_store_is_opened(tmp_path: Path) -> None:
    await FileVersioned(tmp_path).close()
    (tmp_path / ".new" / "07").write_bytes(b"half a val")

    store = FileVersioned(tmp_path)
    await store.close()

    assert os.listdir(tmp_path / ".new") == []


async def test_what_a_living_writer_writes_is_left_to_it(tmp_path: Path) -> None:
    await FileVersioned(tmp_path).close()
    (tmp_path / ".new" / "07").write_bytes(b"half a val")

    with (tmp_path / ".locks" / "07").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        await FileVersioned(tmp_path).close()

    assert os.listdir(tmp_path / ".new") == ["07"]


async def test_a_writer_that_hangs_delays_others_only_so_long_and_readers_not_at_all(tmp_path: Path) -> None:
    store = FileVersioned(tmp_path, busy_timeout_s=0.05)
    version = str(await store.create_if_absent("a", b"x"))
    with (tmp_path / ".locks" / _shard("a")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with pytest.raises(StoreLocked, match="nothing was written"):
            await store.put("a", b"y", version)
        found = await store.get("a")
        assert found is not None
        assert (found.value, await store.list_keys()) == (b"x", ["a"])

    assert await store.put("a", b"y", version)
    await store.close()


@pytest.mark.parametrize("harm", [lambda text: text[:-1], lambda text: b"", lambda text: b"other" + text])
async def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    store = FileVersioned(tmp_path)
    await store.create_if_absent("a", b"value")
    path = tmp_path / "a@"
    path.write_bytes(harm(path.read_bytes()))
    harmed = path.read_bytes()

    with pytest.raises(RowDamaged, match="a@ is not as it was written"):
        await store.get("a")

    assert await store.create_if_absent("a", b"x") is None
    assert path.read_bytes() == harmed
    await store.close()


async def test_folders_that_somebody_tidied_away_are_made_again(tmp_path: Path) -> None:
    store = FileVersioned(tmp_path)
    version = str(await store.create_if_absent("a/b/c", b"x"))
    await store.delete("a/b/c", version)
    (tmp_path / "a+" / "b+").rmdir()
    (tmp_path / "a+").rmdir()

    assert await store.create_if_absent("a/b/c", b"x")
    await store.close()


async def test_files_of_others_are_no_keys(tmp_path: Path) -> None:
    store = FileVersioned(tmp_path)
    await store.create_if_absent("a", b"x")
    (tmp_path / "README").write_text("mine")
    (tmp_path / "photos").mkdir()

    assert await store.list_keys() == ["a"]
    await store.close()


async def test_a_folder_of_others_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"x")

    with pytest.raises(StoreError, match="not empty and not a versioned store"):
        FileVersioned(tmp_path)

    assert os.listdir(tmp_path) == ["photo.jpg"]


async def test_a_folder_of_a_newer_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".mainstay").write_text("mainstay versioned 2\n")

    with pytest.raises(SchemaTooNew, match="upgrade Mainstay"):
        FileVersioned(tmp_path)


async def test_neither_a_file_nor_a_folder_in_no_folder_is_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(StoreError, match="is not a folder"):
        FileVersioned(tmp_path / "file")
    with pytest.raises(StoreError, match="create it first"):
        FileVersioned(tmp_path / "no" / "such")


async def test_a_relative_url_is_of_the_folder_one_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    store = await open_versioned("file:my%20jobs?busy_timeout=3s")
    monkeypatch.chdir("/")
    await store.create_if_absent("a", b"x")
    await store.close()

    assert (tmp_path / "my jobs" / "a@").exists()


@pytest.mark.parametrize("url", ["file:", "file:///", "file://host/srv", "file:a#b"])
async def test_a_url_that_names_no_folder_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="names no folder; write file:///srv/jobs"):
        await open_versioned(url)


async def test_an_option_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownOption, match="did you mean 'busy_timeout'"):
        await open_versioned(f"file://{tmp_path}/x?busy_timeot=1s")
    assert os.listdir(tmp_path) == []
