"""The checks of the demo can fail: a check that always passes proves nothing."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
async def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """The state of a demo on an empty store, without workers."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("MAINSTAY_STORE", f"sqlite:///{tmp_path / 'jobs.db'}")
    before = set(sys.modules)
    app = import_module("demo_tasks").app
    async with app:
        yield import_module("demo_run").DemoState(tmp_path)
    for name in set(sys.modules) - before:
        if name.startswith("demo_"):
            del sys.modules[name]


async def test_every_expectation_fails_when_its_jobs_are_missing(demo: Any) -> None:
    await import_module("demo_checks").show_results(demo)

    assert len(demo.problems) == len(import_module("demo_jobs").EXPECTATIONS)


async def test_an_expectation_fails_when_its_jobs_end_otherwise(demo: Any, capsys: pytest.CaptureFixture[str]) -> None:
    await import_module("demo_run").submit(demo)

    await import_module("demo_checks").show_results(demo)

    assert "not as expected: async function" in demo.problems
    assert "0 of 200 succeeded, 200 pending" in " ".join(capsys.readouterr().out.split())
