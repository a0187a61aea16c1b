"""Tracebacks: what the standard library says, short of the underlining."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable

import pytest

from mainstay.control.trace import trace_text


def plain() -> None:
    raise ValueError("two\nlines")


def caused() -> None:
    try:
        plain()
    except ValueError as error:
        raise RuntimeError("on top") from error


def handling() -> None:
    try:
        caused()
    except RuntimeError:
        int("no number")


def hidden() -> None:
    try:
        plain()
    except ValueError:
        raise RuntimeError("alone") from None


def noted() -> None:
    error = ValueError("see below")
    error.add_note("the note")
    raise error


def misspelt() -> None:
    compile("a b", "words.py", "exec")


def generated() -> None:
    exec("def f():\n  1 / 0\nf()", {})


def endless() -> None:
    error = ValueError("its own cause")
    raise error from error


def grouped() -> None:
    raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])


def raised_by(work: Callable[[], None]) -> BaseException:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - each raises its own
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    "work",
    [plain, caused, handling, hidden, noted, misspelt, generated, endless, grouped],
    ids=lambda work: work.__name__,
)
def test_it_says_what_the_standard_library_says(work: Callable[[], None]) -> None:
    error = raised_by(work)

    told = "".join(traceback.format_exception(error))

    assert _bare(trace_text(error)) == _bare(told)


def _bare(text: str) -> str:
    """Without what underlines."""
    return re.sub(r"^[ |]*[~^]+\n", "", text, flags=re.MULTILINE)


def test_an_error_that_was_never_raised_has_no_frames() -> None:
    assert trace_text(ValueError("quiet")) == "ValueError: quiet\n"


def test_a_deep_stack_keeps_both_ends_and_says_what_is_missing() -> None:
    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        raise ValueError("at the bottom")

    told = trace_text(raised_by(lambda: deep(400)))

    assert told.count("  File ") == 60
    assert "... 343 frames left out ..." in told
    assert "in raised_by" in told
    assert told.endswith("ValueError: at the bottom\n")


def test_a_long_chain_keeps_its_last_errors() -> None:
    def chained(n: int) -> None:
        try:
            if n:
                chained(n - 1)
        finally:
            raise ValueError(f"link {n}")

    told = trace_text(raised_by(lambda: chained(50)))

    assert re.findall(r"link \d+", re.sub(r"\{n\}", "", told))[-1] == "link 50"
    assert "link 44" not in told


def test_a_source_that_is_not_there_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def getline(name: str, *_: object) -> str:
        asked.append(name)
        return ""

    monkeypatch.setattr("linecache.getline", getline)
    scope: dict[str, Callable[[], None]] = {}
    exec(compile("def gone():\n  raise ValueError", "/nowhere/gone-for-good.py", "exec"), scope)

    for _ in range(3):
        assert "gone-for-good.py" in trace_text(raised_by(scope["gone"]))

    assert asked.count("/nowhere/gone-for-good.py") == 1
