"""Addresses: the same everywhere, different for what differs."""

from __future__ import annotations

import enum
import math
import os
import random
import re
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mainstay.errors import InvalidInput
from mainstay.outputs import Unit, output_path, unit_folder
from mainstay.outputs.address import slug
from mainstay.storage.keys import check_key

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
params = st.dictionaries(st.text(max_size=8), values, max_size=4)
names = st.text(min_size=1, max_size=100)
units = st.builds(Unit, names, names, params, st.none() | st.integers(-(2**63), 2**64 - 1))

#: addresses of today are addresses for ever: what is stored is found by them
GOLDEN = {
    "aaa4588899f8d9b20d9f54768fcf380fce9a11de882f40b1d3269bc1eafab3c0": ("sir", "1", {}, None),
    "e8a22e206f518fa88dbeaa03c02609c40c8aba923a65933f1bd4c8cf00816ebf": (
        "sir",
        "2024-10",
        {"beta": 0.3, "gamma": 0.1},
        7,
    ),
    "4ebcc185393ea3ad4770db5e4d51c7b00d04858d1fbb908d5de34884de286675": (
        "größe",
        "c",
        {"a": [1, 2.5, None, True, "x"], "b": {"z": -1, "y": 1e300}},
        -9223372036854775808,
    ),
    "7a937bc0563b7974b8f7e1d891e944c464cf68024667f3a093595e9da926404a": (
        "s",
        "c",
        {"n": 18446744073709551615, "x": 5e-324},
        0,
    ),
}


def exact(value: Any) -> Any:
    """A value that is equal to another only if both are the same to the last bit."""
    if isinstance(value, dict):
        return {"map": {name: exact(inner) for name, inner in value.items()}}
    if isinstance(value, list | tuple):
        return ["list", *map(exact, value)]
    return (type(value).__name__, value.hex() if isinstance(value, float) else value)


@pytest.mark.parametrize(("address", "parts"), GOLDEN.items())
def test_addresses_never_change(address: str, parts: tuple[Any, ...]) -> None:
    assert Unit(*parts).address == address


def test_an_address_is_the_same_in_another_process() -> None:
    program = (
        "from mainstay.outputs import Unit; print(Unit('s', 'c', {'b': 0.1, 'a': {'y': [1], 'x': None}}, 3).address)"
    )
    environ = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == Unit("s", "c", {"a": {"x": None, "y": [1]}, "b": 0.1}, 3).address


@given(units, units)
def test_units_share_an_address_only_if_they_are_the_same(one: Unit, two: Unit) -> None:
    same = [exact([u.study, u.code, u.params, u.seed]) for u in (one, two)]

    assert (one.address == two.address) == (same[0] == same[1]) == (one == two)


@given(params, st.randoms(use_true_random=False))
def test_the_order_of_parameters_does_not_matter(found: dict[str, Any], chance: random.Random) -> None:
    shuffled = list(found.items())
    chance.shuffle(shuffled)

    assert Unit("s", "c", dict(shuffled), 1) == Unit("s", "c", found, 1)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"n": 1}, {"n": 1.0}),
        ({"n": 1}, {"n": True}),
        ({"n": 0.0}, {"n": -0.0}),
        ({"n": None}, {}),
        ({"n": "1"}, {"n": 1}),
    ],
)
def test_values_that_python_takes_for_equal_are_told_apart(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert Unit("s", "c", one, 1) != Unit("s", "c", two, 1)


@given(units)
def test_any_unit_has_a_path_that_any_storage_can_hold(unit: Unit) -> None:
    path = output_path(unit, "result.npy")

    check_key(path)
    assert re.fullmatch(r"v1/[^/]+/[0-9a-f]{2}/[^/]+-[0-9a-f]{20}/result\.npy", path)
    assert len(path) < 250
    assert unit_folder(unit).endswith(unit.address[:20])


def test_a_path_is_readable() -> None:
    unit = Unit("SIR, Grundlauf", "1", {"beta": 1e16, "gamma": -0.25, "kind": "a/b", "n": [1, 2]}, 42)

    assert re.sub("[0-9a-f]{20}$", "H", unit_folder(unit)) == (
        f"v1/SIR-Grundlauf/{unit.address[:2]}/beta=1e16_gamma=-0.25_kind=a-b_n=-1-2-s42-H"
    )


@given(st.text())
def test_a_slug_is_harmless_whatever_it_is_made_of(text: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9=][A-Za-z0-9.=_-]{0,59}", slug(text))


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ({"beta": math.nan}, "params.beta: nan is not a finite number"),
        ({"beta": {"low": [1, math.inf]}}, r"params.beta.low\[1\]: inf is not a finite number"),
        ({"beta": Decimal("0.1")}, "params.beta: a Decimal cannot be part of an address"),
        ({"colour": Colour.RED}, "params.colour: a Colour cannot be part"),
        ({"raw": b"x"}, "params.raw: a bytes cannot be part"),
        ({"big": 2**64}, "params.big: 18446744073709551616 does not fit into 64 bits"),
        ({"text": "\ud800"}, "params.text: .* cannot be written as UTF-8"),
        ({math.nan: 1}, "params: the name nan is not a text"),
        ({"n": {1: 2}}, "params.n: the name 1 is not a text"),
        (["beta"], "params: a list is not a mapping"),
    ],
)
def test_what_has_no_address_is_refused_by_its_name(found: Any, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        Unit("s", "c", found, 1)


@pytest.mark.parametrize("seed", [1.0, "1", True, 2**64])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(InvalidInput, match="seed: "):
        Unit("s", "c", {}, seed)


def test_numbers_of_other_libraries_are_what_they_stand_for() -> None:
    class Index:
        def __index__(self) -> int:
            return 3

    class Real(float):
        pass

    seed: Any = Index()
    assert Unit("s", "c", {"n": Index(), "x": Real(0.5)}, seed) == Unit("s", "c", {"n": 3, "x": 0.5}, 3)
