"""The order of steps, and of workflows that depend on each other. No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..errors import InvalidInput


class Graph(msgspec.Struct, frozen=True):
    """Names, and the names that each waits for. `graph_of` checks that there are no cycles and no unknown names."""

    after: dict[str, tuple[str, ...]]
    """in the order of definition"""

    @property
    def roots(self) -> tuple[str, ...]:
        return tuple(name for name, before in self.after.items() if not before)

    def dependants(self) -> dict[str, tuple[str, ...]]:
        """The names that wait for each."""
        return {name: tuple(other for other, before in self.after.items() if name in before) for name in self.after}

    def layers(self) -> list[tuple[str, ...]]:
        """First the names that wait for nothing; then those that wait only for these; and so on.

        >>> Graph({"a": (), "b": ("a",), "c": ("a",), "d": ("b", "a")}).layers()
        [('a',), ('b', 'c'), ('d',)]
        """
        depth: dict[str, int] = {}
        for name in self.order():
            depth[name] = 1 + max((depth[before] for before in self.after[name]), default=-1)
        return [tuple(name for name in self.after if depth[name] == level) for level in range(_height(depth))]

    def order(self) -> list[str]:
        """All names, each after those it waits for; otherwise in the order of definition."""
        done: dict[str, None] = {}
        while len(done) < len(self.after):
            for name, before in self.after.items():
                if name not in done and all(one in done for one in before):
                    done[name] = None
        return list(done)

    @property
    def is_chain(self) -> bool:
        """Whether no two of them can run at the same time."""
        return all(len(layer) == 1 for layer in self.layers())

    def beyond(self, name: str) -> tuple[str, ...]:
        """All names that wait for it, directly or not.

        >>> Graph({"a": (), "b": ("a",), "c": ("b",), "d": ()}).beyond("a")
        ('b', 'c')
        """
        later: dict[str, None] = {}
        for other in self.order():
            if any(before == name or before in later for before in self.after[other]):
                later[other] = None
        return tuple(later)

    def width(self, of: Iterable[str]) -> int:
        """How many of these can be under way at once: the largest set in which none waits for another. It can be larger
        than any layer, because a slow step overlaps with later ones of other branches.

        >>> Graph({"a": (), "slow": (), "b": ("a",), "c": ("a",)}).width(["a", "slow", "b", "c"])
        3
        """
        # Dilworth's theorem: it equals the smallest number of chains; each matched pair joins two chains
        counted = set(of)
        beyond = {name: [other for other in self.beyond(name) if other in counted] for name in counted}
        joined: dict[str, str] = {}

        def joins(name: str, seen: set[str]) -> bool:
            for other in beyond[name]:
                if other not in seen:
                    seen.add(other)
                    if other not in joined or joins(joined[other], seen):
                        joined[other] = name
                        return True
            return False

        return len(counted) - sum(joins(name, set()) for name in counted)


def _height(depth: Mapping[str, int]) -> int:
    return 1 + max(depth.values(), default=-1)


def graph_of(after: Mapping[str, Iterable[str]], *, field: str, what: str) -> Graph:
    """Check the names and the order. `what` names them in errors: step, workflow.

    >>> graph_of({"login": [], "browse": ["logn"]}, field="Shop", what="step")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: Shop: step browse comes after the unknown step 'logn'; did you mean 'login'?
    >>> graph_of({"a": ["b"], "b": ["a"]}, field="Shop", what="step")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: Shop: steps wait for each other: a -> b -> a; one of them must come first
    """
    known = {name: tuple(dict.fromkeys(before)) for name, before in after.items()}
    for name, before in known.items():
        for one in before:
            if one not in known:
                close = difflib.get_close_matches(one, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known {what}s: {', '.join(known)}"
                raise InvalidInput(field, f"{what} {name} comes after the unknown {what} {one!r}; {hint}")
    if circle := _circle(known):
        path = " -> ".join(circle)
        raise InvalidInput(field, f"{what}s wait for each other: {path}; one of them must come first")
    return Graph(known)


def _circle(after: Mapping[str, Sequence[str]]) -> list[str]:
    """A cycle; empty if there is none."""
    left = dict(after)
    while free := [name for name, before in left.items() if not any(one in left for one in before)]:
        for name in free:
            del left[name]
    if not left:
        return []
    # every remaining name waits for a remaining one: following them must return
    path = [next(iter(left))]
    while True:
        following = next(one for one in left[path[-1]] if one in left)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
