from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.security.doors import Door


@pytest.fixture
def door(tmp_path: Path) -> Door:
    """A site that asks for tokens."""
    return Door(tmp_path)


@pytest.fixture
def open_door(tmp_path: Path) -> Door:
    """A site that asks nobody, as on one's own machine."""
    return Door(tmp_path, asks=False)
