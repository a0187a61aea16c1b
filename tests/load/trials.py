"""Whole runs for tests: a file of workflows, a target in this process, and generators that are real processes."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mainstay.clock import SystemClock
from mainstay.load.generator_process import Limits, LineHandler
from mainstay.load.outputs import Output
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.run import LoadRun
from mainstay.load.sources import LoadTest, load_file
from mainstay.load.stats.model import Summary

HEAD = """
from __future__ import annotations
import asyncio, os, sys
from mainstay.load import (
    URL, Check, Counter, CustomResult, Data, Feed, Headers, HTTPResponse, Metric, Provide, Rate, Trend, Use, Workflow,
    depends, on_start, on_stop, setup, state, step, teardown,
)
"""

GET = """
class Shop(Workflow):
    @step()
    async def browse(self, url: URL = "/") -> HTTPResponse:
        return await self.client.http.get(url)
"""


def written(folder: Path, text: str, name: str = "shop.py") -> LoadTest:
    """The test that a file with these workflows is."""
    file = folder / name
    file.write_text(HEAD + textwrap.dedent(text))
    return load_file(file)


def run_of(
    test: LoadTest,
    *,
    limits: Limits | None = None,
    on_line: LineHandler | None = None,
    outputs: Sequence[Output] = (),
    **options: Any,
) -> LoadRun:
    """A run that has not begun."""
    planned = PlannedRun(test, LoadOptions(**{"processes": 1, **options}))
    return LoadRun(planned.spec(), "run-1", clock=SystemClock(), limits=limits, on_line=on_line, outputs=outputs)


async def ran(test: LoadTest, **options: Any) -> Summary:
    """A run to its end."""
    return await run_of(test, **options).run()


async def until(holds: Callable[[], object], running: asyncio.Future[Any]) -> None:
    """Until something holds that other processes bring about, while a run is under way."""
    while not holds():
        assert not running.done(), running
        await asyncio.sleep(0.005)


def told(path: Path) -> list[str]:
    """What processes wrote down, each a line."""
    return path.read_text().splitlines() if path.exists() else []
