from __future__ import annotations

import pytest

from mainstay.lifecycle import JOB, UNIT, State, Table
from mainstay.lifecycle.diagram import data, mermaid, rows, text


@pytest.mark.parametrize("table", [JOB, UNIT], ids=repr)
def test_mermaid_has_one_arrow_per_allowed_move_and_no_other(table: Table) -> None:
    first, *lines = mermaid(table).splitlines()
    arrows = [tuple(line.strip().split(" --> ")) for line in lines]

    assert first == "stateDiagram-v2"
    assert sorted(a for a in arrows if "[*]" not in a) == sorted(
        (source, to) for source in table.states for to in table.states if table.allows(source, to)
    )
    assert {to for source, to in arrows if source == "[*]"} == set(table.start)
    assert {source for source, to in arrows if to == "[*]"} == set(table.named("final"))


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("table", [JOB, UNIT], ids=repr)
def test_text_names_every_state_with_its_flags_and_loses_nothing_when_it_wraps(table: Table, width: int) -> None:
    drawn = text(table, width=width)
    lines = drawn.splitlines()[2:-2]

    found: dict[str, list[str]] = {}
    for line in lines:
        if not line.startswith(" "):
            found[line.split()[0]] = []
        found[list(found)[-1]].append(line)
    assert list(found) == list(table.states)
    for state in table.states.values():
        said = " ".join(found[state.name]).replace(",", " ").split()
        assert said == [state.name, *state.flags, *(state.next or ("-",))]


def test_text_keeps_within_the_width_when_it_can() -> None:
    assert max(len(line) for line in text(JOB, width=80).splitlines()) <= 80


def test_data_is_enough_to_build_the_table_again() -> None:
    for table in (JOB, UNIT):
        plain = data(table)
        states = tuple(
            State(name=s["name"], meaning=s["meaning"], next=tuple(s["next"]), **dict.fromkeys(s["flags"], True))
            for s in plain["states"]
        )
        again = Table(plain["table"], start=tuple(plain["start"]), states=states)
        assert (again.name, again.start, dict(again.states)) == (table.name, table.start, dict(table.states))


def test_rows_say_what_each_state_means() -> None:
    assert ("quarantined", "settled", "pending, cancelled", JOB.states["quarantined"].meaning) in rows(JOB)
