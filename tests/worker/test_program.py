"""Which objects a worker can be pointed at. What is said of wrong names is tested with the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mainstay import App
from mainstay.errors import InvalidInput
from mainstay.worker import Program, load

MODULE = """
from mainstay import App
from mainstay.model import Settings

class Store:
    store_url = "memory:"
    settings = Settings()

app = App("memory:")
store = Store()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "program_here.py").write_text(MODULE)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "program_here", raising=False)
    return "program_here"


def test_an_app_is_a_program(module: str) -> None:
    found = load(f"{module}:app")

    assert isinstance(found, App)
    assert isinstance(found, Program)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("store", "is of type Store, not an app"), ("App", "is the class App, not an app"), ("ap", "did you mean")],
)
def test_what_has_no_work_to_give_is_no_program(module: str, name: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        load(f"{module}:{name}")


def test_what_a_module_raised_is_behind_the_refusal(module: str, tmp_path: Path) -> None:
    (tmp_path / "program_here.py").write_text("1 / 0")

    with pytest.raises(InvalidInput, match="importing program_here failed: ZeroDivisionError") as refused:
        load(f"{module}:app")

    assert isinstance(refused.value.__cause__, ZeroDivisionError)
