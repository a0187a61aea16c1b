from __future__ import annotations

import pytest

from mainstay.batch.runners.template import Template
from mainstay.errors import InvalidInput

HOLES = ("command", "line", "name")


def template(text: str) -> Template:
    return Template(text, placeholders=HOLES, field="submit")


def test_a_command_becomes_several_words_and_a_line_one() -> None:
    command = ["run", "it's", "a b"]

    assert template("nice {command}").words(command=command, line=command) == ["nice", "run", "it's", "a b"]
    assert template("--wrap={line}").words(command=command, line=command) == ["""--wrap=run 'it'"'"'s' 'a b'"""]


def test_what_fills_a_hole_is_never_split_or_filled_again() -> None:
    assert template("submit -n {name}").words(name="a b {name} $(id)") == ["submit", "-n", "a b {name} $(id)"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("run {job}", "{job} is unknown here; use {command}, {line}, {name}"),
        ("run --wrap={command}", "{command} is several words and must stand alone; {line} is one word"),
        ("run 'it", "is not a command line: No closing quotation"),
        ("  ", "is empty; write a command line"),
    ],
)
def test_a_command_line_that_cannot_be_meant_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        template(text)

    assert told in str(refused.value)
