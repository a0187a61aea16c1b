"""The order of steps."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, strategies as st

from mainstay.errors import InvalidInput
from mainstay.load.graph import Graph, graph_of


@st.composite
def orders(draw: st.DrawFn) -> dict[str, list[str]]:
    """Any order without a circle, defined in any sequence."""
    names = [f"s{number}" for number in range(draw(st.integers(1, 9)))]
    after = {
        name: draw(st.lists(st.sampled_from(names[:at]), unique=True, max_size=3)) if at else []
        for at, name in enumerate(names)
    }
    return {name: after[name] for name in draw(st.permutations(names))}


@given(orders())
def test_all_come_after_what_they_wait_for(after: dict[str, list[str]]) -> None:
    graph = graph_of(after, field="Shop", what="step")

    order = graph.order()
    assert sorted(order) == sorted(after)
    for name, before in after.items():
        assert all(order.index(one) < order.index(name) for one in before)


@given(orders())
def test_layers_are_as_early_as_can_be(after: dict[str, list[str]]) -> None:
    layers = graph_of(after, field="Shop", what="step").layers()

    depth = {name: level for level, layer in enumerate(layers) for name in layer}
    assert sum(map(len, layers)) == len(after)
    for name, before in after.items():
        assert depth[name] == (1 + max(depth[one] for one in before) if before else 0)


@given(orders())
def test_what_lies_beyond_a_step_is_all_that_waits_for_it(after: dict[str, list[str]]) -> None:
    graph = graph_of(after, field="Shop", what="step")

    def waits_for(name: str, other: str) -> bool:
        return any(one == other or waits_for(one, other) for one in after[name])

    for name in after:
        assert set(graph.beyond(name)) == {other for other in after if waits_for(other, name)}


@given(orders(), st.data())
def test_as_many_overlap_as_there_are_that_do_not_wait_for_each_other(
    after: dict[str, list[str]], data: st.DataObject
) -> None:
    graph = graph_of(after, field="Shop", what="step")
    counted = data.draw(st.sets(st.sampled_from(sorted(after))))

    def overlap(names: tuple[str, ...]) -> bool:
        return not any(one in graph.beyond(other) for one, other in itertools.permutations(names, 2))

    sizes = range(len(counted) + 1)
    widest = max(size for size in sizes if any(map(overlap, itertools.combinations(counted, size))))
    assert graph.width(counted) == widest


@given(orders(), st.data())
def test_a_circle_is_refused_and_shown(after: dict[str, list[str]], data: st.DataObject) -> None:
    graph = graph_of(after, field="Shop", what="step")
    first = data.draw(st.sampled_from(sorted(after)))
    then = data.draw(st.sampled_from([first, *graph.beyond(first)]))

    with pytest.raises(InvalidInput, match="wait for each other: ") as refusal:
        graph_of({**after, first: [*after[first], then]}, field="Shop", what="step")

    shown = re.search(r"each other: (.*);", str(refusal.value))
    assert shown is not None
    circle = shown[1].split(" -> ")
    assert circle[0] == circle[-1]
    for one, following in itertools.pairwise(circle):
        assert following in [*after[one], *([then] if one == first else [])]


def test_a_name_that_is_not_there_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidInput, match=r"browse comes after the unknown step 'logon'.*did you mean 'login'\?"):
        graph_of({"login": [], "browse": ["logon"]}, field="Shop", what="step")


def test_the_same_name_twice_is_waited_for_once() -> None:
    assert graph_of({"a": [], "b": ["a", "a"]}, field="Shop", what="step").after == {"a": (), "b": ("a",)}


def test_a_graph_without_steps_has_no_layers() -> None:
    assert Graph({}).layers() == []
