"""The demo's judge can say no: a proof that always holds proves nothing."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """The demo's, on a store of its own, with nobody on it."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("MAINSTAY_STORE", f"sqlite:///{tmp_path / 'jobs.db'}")
    before = set(sys.modules)
    app = import_module("demo_tasks").app
    async with app:
        yield import_module("demo_stage").Stage(tmp_path)
    for name in set(sys.modules) - before:
        if name.startswith("demo_"):
            del sys.modules[name]


async def test_every_fate_is_found_wanting_when_its_jobs_are_not_there(stage: Any) -> None:
    await import_module("demo_proof").tell_fates(stage)

    assert len(stage.wrong) == len(import_module("demo_fates").FATES)


async def test_a_fate_is_found_wanting_when_its_jobs_came_to_another_end(
    stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await import_module("demo_acts").submit(stage)

    await import_module("demo_proof").tell_fates(stage)

    assert "not as expected: simply done (async)" in stage.wrong
    assert "0 of 200 succeeded, 200 pending" in " ".join(capsys.readouterr().out.split())
