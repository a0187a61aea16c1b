"""Shared by the tests of simulated worlds."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Workers warn of every fault."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
