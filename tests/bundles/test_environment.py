"""Processes that run the code of a bundle find it first."""

from __future__ import annotations

import os

import pytest

from mainstay.bundles import code_environment


def test_processes_import_from_the_bundle_first_and_not_from_the_current_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/srv/lib")
    made = code_environment("/cache/b")
    assert (made["PYTHONPATH"], made["PYTHONSAFEPATH"]) == (f"/cache/b{os.pathsep}/srv/lib", "1")
    monkeypatch.delenv("PYTHONPATH")
    assert code_environment("/cache/b")["PYTHONPATH"] == "/cache/b"
