"""`outputs list`, `outputs verify` and `outputs migrate`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mainstay.cli import app
from mainstay.outputs import OutputStore, Unit, open_outputs, output_path
from tests.outputs.legacy import write_legacy

UNIT = Unit("sir", "1", {"beta": 0.3}, 7)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["outputs", *words], catch_exceptions=False, env={"COLUMNS": "100"})


def told(*words: str, code: int = 0) -> Any:
    done = run(*words, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def does(url: str, work: Callable[[OutputStore], Awaitable[Any]]) -> None:
    async def do() -> None:
        async with await open_outputs(url) as store:
            await work(store)

    asyncio.run(do())


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"file://{tmp_path}/outputs"
    does(url, lambda store: store.publish(UNIT, {"result.npy": b"0123456789", "log": b"fine"}))
    return url


def test_studies_and_their_units_are_listed(url: str) -> None:
    does(url, lambda store: store.blobs.write(output_path(Unit("sir", "1", {}, 1), "half"), b"1"))

    assert told("list", url) == [{"name": "sir", "units": 1, "unfinished": 1, "files": 3, "bytes": 15}]
    assert run("list", url).stdout.splitlines()[2].split() == ["sir", "1", "1", "3", "15", "B"]
    units = told("list", url, "--study", "sir")
    assert sorted(line["name"].rpartition("-")[0] for line in units) == ["beta=0.3-s7", "unit-s1"]
    assert "1 more; --limit shows them" in run("list", url, "--study", "sir", "--limit", "1").stdout
    assert "no outputs" in run("list", url, "--study", "none").stdout


def test_damage_is_found_named_and_told_by_the_exit_code(url: str) -> None:
    assert run("verify", url).stdout == "1 unit, 2 files, 14 B read\nall outputs are intact\n"
    does(url, lambda store: store.blobs.write(output_path(UNIT, "log"), b"find"))

    assert told("verify", url, "--quick")["bad"] == []
    found = told("verify", url, code=1)
    assert [(bad["path"], bad["state"]) for bad in found["bad"]] == [(output_path(UNIT, "log"), "corrupt")]
    shown = run("verify", url)
    assert (shown.exit_code, f"corrupt: {output_path(UNIT, 'log')}" in shown.stdout) == (1, True)


def test_an_older_layout_is_moved(url: str) -> None:
    assert run("migrate", url).stdout == "no outputs in an older layout\n"
    does(url, lambda store: write_legacy(store, Unit("old", "1", {}, 1), result=b"0123"))

    would = run("migrate", url, "--dry-run")
    assert (would.exit_code, would.stdout) == (
        1, f"1 unit would be moved: 1 file, 4 B\nmainstay outputs migrate {url}\n",
    )  # fmt: skip
    done = told("migrate", url)
    assert (done["moved"], done["left"]) == (1, {})
    assert [line["name"] for line in told("list", url)] == ["old", "sir"]
    does(url, lambda store: store.blobs.write(f"old/{'0' * 64}/result", b"0123"))
    left = run("migrate", url)
    assert (left.exit_code, "left: old/000" in left.stdout) == (1, True)


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    done = run("list", f"file://{tmp_path}/none")

    assert (done.exit_code, "there are no outputs here" in done.output) == (2, True)
    assert list(tmp_path.iterdir()) == []
    assert told("verify", f"file://{tmp_path}/none", code=2)["error"]["code"] == "store_error"
