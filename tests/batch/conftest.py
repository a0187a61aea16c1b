"""An app whose batches run in virtual time, with outputs in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstay import App
from mainstay.testing import Harness


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where outputs are."""
    return tmp_path / "outputs"


@pytest.fixture
def app(root: Path) -> App:
    return App("memory:", outputs=f"file://{root}?sync=off")


@pytest.fixture
def box(app: App) -> Iterator[Harness]:
    with Harness(app) as box:
        yield box
