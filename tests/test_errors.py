from __future__ import annotations

import re

import pytest

from mainstay import errors
from mainstay.errors import InvalidInput, InvalidTransition, JobNotFound, MainstayError, UnknownOption

ALL = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, MainstayError)]


def test_the_tree_drawn_at_the_head_of_the_module_is_the_tree() -> None:
    lines = (errors.__doc__ or "").splitlines()
    found = [re.match(r"    ([│├└─ ]*)([A-Z]\w+)", line) for line in lines]
    drawn = [(len(match[1]) // 4, match[2]) for match in found if match]
    parents: dict[str, str] = {}
    path: list[str] = []
    for depth, name in drawn:
        path = [*path[:depth], name]
        if depth:
            parents[name] = path[depth - 1]

    assert parents == {kind.__name__: kind.__bases__[0].__name__ for kind in ALL if kind is not MainstayError}


def test_every_error_has_a_stable_code_of_its_own() -> None:
    codes = {kind.code: kind for kind in ALL}

    assert len(codes) == len(ALL)
    assert all(re.fullmatch(r"[a-z_]+", code) for code in codes)


def test_every_error_is_explained() -> None:
    assert all(kind.__doc__ for kind in ALL)


def test_a_refused_value_names_field_and_rule() -> None:
    error = InvalidInput("priority", "101 is out of range; -100 to 100")

    assert str(error) == "priority: 101 is out of range; -100 to 100"
    assert (error.field, isinstance(error, ValueError)) == ("priority", True)


def test_an_unknown_option_offers_the_closest_or_else_all() -> None:
    assert str(UnknownOption("prioritty", ["queue", "priority"])) == (
        "prioritty: unknown option; did you mean 'priority'?"
    )
    assert str(UnknownOption("zzz", ["queue", "priority"])) == "zzz: unknown option; known options: priority, queue"


def test_invalid_transition_conflict_and_not_found_are_not_each_other() -> None:
    apart = (InvalidTransition, errors.Conflict, JobNotFound)

    assert not any(issubclass(a, b) for a in apart for b in apart if a is not b)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            InvalidTransition("j", "failed", "running", allowed=("pending", "cancelled")),
            "job j cannot go from failed to running; failed may become pending, cancelled",
        ),
        (
            InvalidTransition("j", "skipped", "running", allowed=(), why="final", story=["1. a", "2. b"]),
            "job j cannot go from skipped to running; skipped may become nothing (final)\n  1. a\n  2. b",
        ),
        (JobNotFound("j"), "there is no job j; it may have been deleted or trimmed"),
    ],
)
def test_messages_say_what_happened_to_which_job_and_what_is_possible(error: MainstayError, message: str) -> None:
    assert str(error) == message
