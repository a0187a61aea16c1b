"""What the house must show, with its limits. `make house` prints it; the tests hold what holds today.

A measure has a limit, which is where it must end, and a record: the number it has reached. The record may only go
down. Where a change raises a number for a good reason, its commit says why and writes the new record here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tests.house import names, startup, tree, words
from tests.house.submit_walk import MOST_FILES, MOST_FUNCTIONS, SubmitWalk, submit_walk


class Measured(NamedTuple):
    """A number, and the places it was counted at."""

    value: float
    details: tuple[str, ...] = ()


class Measure(NamedTuple):
    """One number of the house."""

    name: str
    take: Callable[[], Measured]
    #: where it must end
    limit: float
    #: what it has reached; None for numbers that depend on the machine
    record: float | None


def _code() -> Measured:
    found = tree.lines_by_package()
    return Measured(found.total(), tuple(f"{name:<10} {lines:>6,}" for name, lines in found.most_common()))


def _command_line() -> Measured:
    found = [(tree.code_lines(module.text), module.name) for module in tree.command_line_modules()]
    return Measured(
        sum(lines for lines, _ in found), tuple(f"{lines:>6,} {name}" for lines, name in sorted(found)[::-1])
    )


def _shared_class_names() -> Measured:
    found = names.shared_class_names()
    return Measured(len(found), tuple(f"{name}: {', '.join(homes)}" for name, homes in found.items()))


def _listed(take: Callable[[], list[str]]) -> Callable[[], Measured]:
    def taken() -> Measured:
        found = take()
        return Measured(len(found), tuple(found))

    return taken


@cache
def _submit() -> SubmitWalk:
    return submit_walk()


def _submit_files() -> Measured:
    return Measured(_submit().files, tuple(sorted({line.partition(":")[0] for line in _submit().lines})))


MEASURES = [
    Measure("code lines of src", _code, 63_000, 97_000),
    Measure("code lines of the command line", _command_line, 6_000, 8_700),
    Measure(
        "functions of a submit on SQLite",
        lambda: Measured(_submit().functions, tuple(_submit().lines)),
        MOST_FUNCTIONS,
        54,
    ),
    Measure("files of a submit on SQLite", _submit_files, MOST_FILES, 20),
    Measure("class names used twice", _shared_class_names, 10, 0),
    Measure("class names used twice without a reason", _listed(names.unexplained_class_names), 0, 0),
    Measure("gerund modules without a reason", _listed(names.gerund_modules), 0, 0),
    Measure("imports past a package's face", _listed(names.past_the_face), 0, 0),
    Measure("listed words on pages", _listed(lambda: [str(one) for one in words.in_pages()]), 0, 0),
    Measure("listed words in programs", _listed(lambda: [str(one) for one in words.in_programs()]), 0, 0),
    Measure("CPU seconds of mainstay --help", lambda: Measured(startup.cpu_seconds_of_help()), 0.25, None),
]
