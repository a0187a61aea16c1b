"""What all users share can be read, and not be changed."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest

from mainstay.load.shared_data import fixed, own

DATA: Any = {"a": [1, {"b": [2]}], "c": "text"}


def test_it_is_what_it_was_for_everybody_who_reads_it() -> None:
    found = fixed(DATA)

    assert found == DATA
    assert json.loads(json.dumps(found)) == msgspec.json.decode(msgspec.json.encode(found)) == DATA
    assert isinstance(found, dict)
    assert isinstance(found["a"], list)


@pytest.mark.parametrize(
    "change",
    [
        "found['c'] = 1",
        "del found['c']",
        "found |= {'d': 1}",
        "found.update(d=1)",
        "found.setdefault('d', 1)",
        "found.pop('c')",
        "found.popitem()",
        "found.clear()",
        "found['a'][0] = 2",
        "found['a'][1]['b'] += [3]",
        "found['a'][1]['b'] *= 2",
        "found['a'].append(1)",
        "found['a'].extend([1])",
        "found['a'].insert(0, 1)",
        "found['a'].remove(1)",
        "found['a'].pop()",
        "found['a'].clear()",
        "found['a'].reverse()",
        "found['a'].sort()",
        "del found['a'][0]",
    ],
)
def test_no_part_of_it_can_be_changed(change: str) -> None:
    found = fixed(DATA)

    with pytest.raises(TypeError, match="all users share this"):
        exec(change, {"found": found})

    assert found == DATA


def test_copies_of_it_can_be_changed_and_change_nothing_else() -> None:
    found = fixed(DATA)
    shallow = [copy.copy(found), dict(found), found.copy(), {**found}]
    deep = [copy.deepcopy(found), own(found)]
    for each in (*shallow, *deep):
        each["d"] = 1
    for each in deep:
        each["a"][1]["b"].append(3)
    for each in (copy.copy(found["a"]), list(found["a"]), found["a"].copy(), found["a"][:]):
        each.append(3)

    assert found == DATA
