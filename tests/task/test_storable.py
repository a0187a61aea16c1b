"""Equal data is stored as equal bytes, in every process."""

from __future__ import annotations

import dataclasses
import enum
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from mainstay.task.storable import canonical

#: encodes what is written to it, a line each
ENCODER = """
import sys

from mainstay.task.storable import canonical
from tests.task.test_storable import Box, Colour, Crate

for line in sys.stdin:
    print(canonical(eval(line)).hex(), flush=True)
"""


@dataclasses.dataclass(frozen=True)
class Box:
    content: object
    label: str = "box"


class Crate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    the_content: object
    a_label: str = "crate"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"

    def __repr__(self) -> str:
        return str(self)


SIMPLE = st.none() | st.booleans() | st.integers(-5, 5) | st.text("abcdef", max_size=3) | st.binary(max_size=2)
HASHABLE = st.recursive(
    SIMPLE | st.sampled_from(Colour),
    lambda inner: st.frozensets(inner, max_size=4) | st.tuples(inner, inner) | st.builds(Crate, inner),
    max_leaves=6,
)
KEYS = st.integers(-5, 5) | st.text("abcdef", max_size=3)
DATA = st.recursive(
    SIMPLE | st.sets(HASHABLE, max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.builds(Box, inner)
        | st.builds(Crate, inner)
    ),
    max_leaves=8,
)


class Others:
    """Processes in which sets have other orders than here."""

    def __init__(self, stack: ExitStack) -> None:
        self._processes = [stack.enter_context(self._process(seed)) for seed in ("1", "2", "3")]

    def canonical(self, value: object) -> set[str]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{value!r}\n")
            process.stdin.flush()
        return {process.stdout.readline().strip() for process in self._processes if process.stdout is not None}

    def _process(self, seed: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(
            [sys.executable, "-c", ENCODER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )


@pytest.fixture(scope="module")
def others() -> Iterator[Others]:
    with ExitStack() as stack:
        yield Others(stack)


@given(value=DATA)
@settings(max_examples=200, deadline=None)
def test_sets_and_mappings_are_stored_the_same_by_every_process(others: Others, value: object) -> None:
    assert others.canonical(value) == {canonical(value).hex()}


@pytest.mark.parametrize(
    "value",
    [
        {1: set("abcdef")},
        {"deep": [{2: {"x": (frozenset("abc"), frozenset("bcd"))}}]},
        {frozenset("abc"), frozenset("bcd"), frozenset("cde")},
        {frozenset("abc"): 1, frozenset("bcd"): 2},
        {Colour.RED, Colour.BLUE},
        {"a", "b", 1, 2, None},
        [Box({1: set("abcdef")}), Crate({frozenset("abc"), frozenset("def")})],
    ],
    ids=["set in a mapping", "deep", "sets in a set", "sets as keys", "enums", "mixed", "in objects"],
)
def test_what_the_encoder_cannot_put_in_order_is_put_in_order(others: Others, value: object) -> None:
    assert others.canonical(value) == {canonical(value).hex()}


def test_what_is_put_in_order_here_is_stored_as_the_encoder_would() -> None:
    value = Crate([Box("x"), {"b": 1, "a": 2}, (1, 2), {3, 1, 2}])
    same = Crate([Box("x"), {"b": 1, "a": 2}, (1, 2), {3, 1, 2}, {1: 2}])

    plain, careful = (msgspec.msgpack.decode(canonical(each), strict=False) for each in (value, same))

    assert careful == {"theContent": [*plain["theContent"], {1: 2}]}
    assert value == Crate([Box("x"), {"b": 1, "a": 2}, (1, 2), {3, 1, 2}])
