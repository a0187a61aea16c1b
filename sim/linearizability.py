"""Whether the history of one key could have come from a single, atomic object (Wing and Gong's search, with memory).

Each operation has a call, and an answer or none: a client that got no answer cannot know whether it took effect. The
history is linearizable if the operations can be put in an order that respects real time, takes those without an answer
in or leaves them out, and explains every answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)
Q = TypeVar("Q")
A = TypeVar("A")

#: the time of an answer that never came
NEVER = float("inf")


class Operation(NamedTuple, Generic[Q, A]):
    """What one client asked, and when it was answered with what."""

    request: Q
    called_s: float
    answer: A | None = None
    answered_s: float = NEVER


#: the state after a request, and the answer it must have
Step = Callable[[S, Q], tuple[S, A]]


def is_linearizable(history: Sequence[Operation[Q, A]], step: Step[S, Q, A], initial: S) -> bool:
    """Search for an order that explains every answer.

    >>> def register(state, request):
    ...     return (request, request) if request is not None else (state, state)
    >>> write = Operation("a", 0.0, "a", 1.0)
    >>> stale_read = Operation(None, 2.0, "", 3.0)
    >>> is_linearizable([write, Operation(None, 2.0, "a", 3.0)], register, "")
    True
    >>> is_linearizable([write, stale_read], register, "")
    False
    >>> unanswered = Operation("a", 0.0)
    >>> is_linearizable([unanswered, stale_read], register, "")
    True
    """
    seen: set[tuple[frozenset[int], S]] = set()

    def search(left: frozenset[int], state: S) -> bool:
        if all(history[index].answered_s == NEVER for index in left):
            return True
        if (left, state) in seen:
            return False
        seen.add((left, state))
        # an operation can be next only if none of the others was answered before it was called
        first_answer_s = min(history[index].answered_s for index in left)
        for index in sorted(left):
            operation = history[index]
            if operation.called_s > first_answer_s:
                continue
            after, answer = step(state, operation.request)
            if operation.answered_s != NEVER and operation.answer != answer:
                continue
            if search(left - {index}, after):
                return True
        return False

    return search(frozenset(range(len(history))), initial)
