"""What a folder can do to outputs: be denied, unmounted, left untidy."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import servers
from mainstay.errors import InvalidInput, PathBlocked, StoreDenied, StoreError, StoreUnavailable
from mainstay.outputs import OutputStore, Unit, open_outputs, unit_folder

NOBODY = 65534
FILES: dict[str, Path | bytes] = {"result.npy": b"0123456789"}


@contextlib.contextmanager
def without_permission(path: Path) -> Iterator[None]:
    """Nobody may enter; root, whom that does not stop, becomes somebody else meanwhile."""
    mode, user = path.stat().st_mode, os.geteuid()
    path.chmod(0)
    try:
        if user == 0:
            os.seteuid(NOBODY)
        yield
    finally:
        os.seteuid(user)
        path.chmod(mode)


async def test_what_is_denied_is_unreadable_and_the_rest_is_not(unit: Unit) -> None:
    other = Unit("seir", "1", {}, 1)
    with servers.folder("mainstay-denied-") as place:
        async with await open_outputs(f"file://{place}/outputs") as store:
            for one in (unit, other):
                await store.publish(one, FILES)
            # shared on purpose, so that only the folder of one unit is denied
            (place / "outputs").chmod(0o755)
            with without_permission(place / "outputs" / unit_folder(unit)):
                denied, there = await store.look([unit, other], list(FILES))
                with pytest.raises(StoreDenied, match="check owner and permissions"):
                    await store.read(unit, "result.npy")
            back, _ = await store.look([unit, other], list(FILES))

    assert (denied.outputs["result.npy"].state, there.whole, back.whole) == ("unreadable", True, True)
    assert isinstance(denied.outputs["result.npy"].error, StoreDenied)


async def test_a_file_that_may_not_be_read_is_unreadable_by_content(unit: Unit) -> None:
    with servers.folder("mainstay-denied-") as place:
        async with await open_outputs(f"file://{place}/outputs") as store:
            await store.publish(unit, FILES)
            with without_permission(place / "outputs" / unit_folder(unit) / "result.npy"):
                (found,) = await store.look([unit], list(FILES), verify="content", fresh=True)

    assert found.outputs["result.npy"].state == "unreadable"


async def test_a_folder_that_is_not_mounted_is_an_outage_and_not_missing_files(folder: OutputStore, unit: Unit) -> None:
    await folder.publish(unit, FILES)
    place = Path(folder.place.removeprefix("file://"))
    place.rename(place.with_name("elsewhere"))
    place.mkdir()

    (gone,) = await folder.look([unit], list(FILES))
    assert gone.outputs["result.npy"].state == "unreadable"
    assert "Is its disk mounted?" in gone.outputs["result.npy"].detail
    for call in (folder.read(unit, "result.npy"), folder.publish(unit, FILES)):
        with pytest.raises(StoreUnavailable, match="Is its disk mounted"):
            await call

    place.rmdir()
    place.with_name("elsewhere").rename(place)
    assert await folder.read(unit, "result.npy") == b"0123456789"


async def test_what_killed_writers_left_aside_goes_when_it_is_opened_again(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/outputs"
    await (await open_outputs(url)).close()
    aside = tmp_path / "outputs" / ".new"
    for name in ("dead", "alive", "young"):
        (aside / name).write_bytes(b"half of it")
    old = time.time() - 3600
    for name in ("dead", "alive"):
        os.utime(aside / name, (old, old))

    with (aside / "alive").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await (await open_outputs(url)).close()

    assert sorted(os.listdir(aside)) == ["alive", "young"]


async def test_nothing_is_left_aside_or_empty(folder: OutputStore, unit: Unit) -> None:
    await folder.publish(unit, FILES)
    await folder.remove(unit)

    place = Path(folder.place.removeprefix("file://"))
    assert sorted(str(path.relative_to(place)) for path in place.rglob("*")) == [".new", ".outputs"]


async def test_a_folder_can_be_asked_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a folder"):
        await open_outputs(f"file://{tmp_path}/outputs?create=no")
    (tmp_path / "outputs").mkdir()
    with pytest.raises(StoreError, match="is its disk mounted"):
        await open_outputs(f"file://{tmp_path}/outputs?create=no")
    with pytest.raises(StoreError, match="parent of .* does not exist"):
        await open_outputs(f"file://{tmp_path}/none/outputs")
    (tmp_path / "outputs" / ".outputs").write_text("another kind")
    with pytest.raises(StoreError, match="does not know"):
        await open_outputs(f"file://{tmp_path}/outputs")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("outputs", "is not a store URL"),
        ("ftp://x/y", "known schemes: az, file, gs, memory, s3"),
        ("file://host/x", "names no folder"),
        ("file:", "names no folder"),
        ("file:x?sink=on", "known options: create, sync"),
        ("s3://", "names no bucket"),
    ],
)
async def test_a_url_that_names_nothing_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        await open_outputs(url)


def _empty_folder(place: Path) -> None:
    (place / "result.npy").unlink()
    (place / "result.npy").mkdir()


def _folder_with_something(place: Path) -> None:
    _empty_folder(place)
    (place / "result.npy" / "mine").write_text("mine")


def _empty_file(place: Path) -> None:
    shutil.rmtree(place)
    place.touch()


def _file_with_something(place: Path) -> None:
    shutil.rmtree(place)
    place.write_text("mine")


def _link_to_nowhere(place: Path) -> None:
    shutil.rmtree(place)
    place.symlink_to("/nonexistent/folder")


def _file_above(place: Path) -> None:
    shutil.rmtree(place.parent)
    place.parent.write_text("mine")


@pytest.mark.parametrize("obstacle", [_empty_folder, _empty_file], ids=lambda one: one.__name__)
async def test_an_obstacle_that_holds_nothing_gives_way(
    folder: OutputStore, unit: Unit, tmp_path: Path, obstacle: Callable[[Path], None]
) -> None:
    await folder.publish(unit, FILES)
    obstacle(tmp_path / "outputs" / unit_folder(unit))
    (seen,) = await folder.look([unit], list(FILES))
    assert seen.outputs["result.npy"].state == "missing"

    await folder.publish(unit, FILES)

    assert await folder.read(unit, "result.npy") == b"0123456789"


@pytest.mark.parametrize(
    ("obstacle", "told"),
    [
        (_folder_with_something, "result.npy is a folder with something in it"),
        (_file_with_something, "is not a folder"),
        (_link_to_nowhere, "is a link that leads nowhere"),
        (_file_above, "is not a folder"),
    ],
)
async def test_an_obstacle_that_holds_something_is_named_and_left_alone(
    folder: OutputStore, unit: Unit, tmp_path: Path, obstacle: Callable[[Path], None], told: str
) -> None:
    await folder.publish(unit, FILES)
    place = tmp_path / "outputs" / unit_folder(unit)
    obstacle(place)

    with pytest.raises(PathBlocked, match=told) as refused:
        await folder.publish(unit, FILES)

    assert str(place.parent) in str(refused.value)
    assert "move it away" in str(refused.value)
    assert os.listdir(tmp_path / "outputs" / ".new") == []
    kept = [place / "result.npy" / "mine", place, place.parent]
    assert any(one.is_file() and one.read_text() == "mine" for one in kept) or place.is_symlink()
