"""The benchmark of registries measures every kind of call, and says which bars were met."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from rich.console import Console

from bench import registry
from bench.registry import Sizes, Took


def test_each_kind_of_call_is_timed_and_kept(tmp_path: Path) -> None:
    sizes = Sizes(calls=5, lists=2)
    rows = asyncio.run(registry._on("file", f"file://{tmp_path}/jobs", sizes))
    assert [row.what.split()[0] for row in rows] == ["create", "get", "update", "list", "open,"]
    assert all(0 < row.p50 <= row.p99 for row in rows)
    registry.save(rows, {"S3": "no server"}, sizes, tmp_path / "kept.json")
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert (len(kept["rows"]), kept["skipped"]) == (5, {"S3": "no server"})


def test_a_bar_is_met_below_it_and_where_there_is_none() -> None:
    rows = [
        Took(store="file", what="get", p50=1, p99=99.9, bar=100),
        Took(store="file", what="get", p50=1, p99=100, bar=100),
        Took(store="file", what="open", p50=1, p99=900, bar=None),
    ]
    assert [row.met for row in rows] == [True, False, True]
    console = Console(record=True, width=100)
    console.print(registry.table(rows))
    assert console.export_text().count("p99 under 100 ms") == 2
