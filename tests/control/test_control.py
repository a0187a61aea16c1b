"""Control itself: what it is made from."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.control import Control
from mainstay.errors import InvalidInput, UnknownOption
from mainstay.model import Settings
from mainstay.testing import MemoryStore


def test_without_settings_they_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTAY_LEASE", "20s")

    assert Control(MemoryStore()).settings == Settings.of(lease="20s")


def test_settings_that_are_given_win_over_the_environment_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTAY_LEASE", "20s")

    assert Control(MemoryStore(), settings=Settings.of(retries=5)).settings == Settings.of(retries=5)


def test_a_misspelt_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTAY_LEESE", "20s")

    with pytest.raises(UnknownOption, match="^MAINSTAY_LEESE: unknown option; did you mean 'MAINSTAY_LEASE'"):
        Control(MemoryStore())


@pytest.mark.parametrize("store", ["sqlite:///jobs.db", None, 5, MemoryStore])
def test_what_is_not_an_open_store_is_refused_with_how_to_open_one(store: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^store: .* is not an open store; .*await open_store"):
        Control(store)
