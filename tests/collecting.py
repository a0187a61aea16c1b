"""What is collected, in which order it is run, and what it costs later."""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule


class Collecting:
    """A plugin, so that it is asked about `src` as well."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[Any], list[Any]]:
        """Looking for examples in a module means importing it and reading all its docstrings; most have none."""
        found = yield
        if any(isinstance(one, DoctestModule) for one in found) and ">>> " not in file_path.read_text("utf-8"):
            return [one for one in found if not isinstance(one, DoctestModule)]
        return found

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Files with slow tests come first: at the end of a run, quick ones keep all its processes busy."""
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Eleven thousand tests stay until the end; whoever looks for garbage need not look at them each time."""
        gc.collect()
        gc.freeze()
