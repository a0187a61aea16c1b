"""How much context a run on nodes may have: what setups return and workflows provide.

It travels in messages of the bus, and a successor of the leader needs it from the record of the run. A value that has
no room fails its workflow when it is returned, so no load begins with a part of its context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..engine.messages import Values
from .messages import encode

#: bytes of what was returned and may still be used: by setups of the running layer, and by all that workflows provide
CONTEXT_BYTES = 480 * 1024
#: characters of an error, which is in the record, too
_LONGEST_WHY = 2000
#: bytes of what the workflows of a layer get of others: each has a copy, and all copies travel in one message of the
#: bus, of 1 MiB, with what their own setups returned
LAYER_BYTES = 480 * 1024


def context_bytes(values: Values) -> int:
    """The size of an answer, as it is stored."""
    return sum(_size(own) for own in values.values.values())


def within_context(answer: Values, *, kept: int = 0) -> Values:
    """The answer, without the values that do not fit beside the `kept` bytes. Their workflows have failed.

    >>> answer = within_context(Values(values={"Shop": {"tokens": "x" * 600_000}, "Search": {"page": 1}}))
    >>> answer.values
    {'Search': {'page': 1}}
    >>> answer.failed["Shop"]
    'tokens returned 586 KiB; the context of a run on nodes has at most 480 KiB. Return less: a name or a path, and read
    the data where it is used'
    """
    values: dict[str, dict[str, Any]] = {}
    failed = {workflow: why[:_LONGEST_WHY] for workflow, why in answer.failed.items()}
    for workflow, own in answer.values.items():
        size = _size(own)
        if kept + size <= CONTEXT_BYTES:
            values[workflow] = own
            kept += size
            continue
        sizes = {name: len(encode(value)) for name, value in own.items()}
        largest = max(sizes, key=lambda name: sizes[name])
        used = f", and {_kib(kept)} are in use" if kept else ""
        limit = f"the context of a run on nodes has at most {_kib(CONTEXT_BYTES)}{used}"
        advice = "Return less: a name or a path, and read the data where it is used"
        failed.setdefault(workflow, f"{largest} returned {_kib(sizes[largest])}; {limit}. {advice}")
    return Values(values=values, failed=failed)


def beyond_layer(shared: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """By workflow of a layer: why it cannot get the context of others. Empty: all can.

    >>> sorted(beyond_layer({name: {"tokens": "x" * 200_000} for name in ("Buy", "Look", "Pay")}))
    ['Pay']
    """
    used, refused = 0, {}
    for workflow, own in shared.items():
        size = _size(own)
        if used + size > LAYER_BYTES:
            rule = f"with it, the workflows that run together get {_kib(used + size)} of context from others"
            refused[workflow] = f"{rule}; at most {_kib(LAYER_BYTES)}. Provide less, or let fewer of them use it"
        else:
            used += size
    return refused


def _size(own: Mapping[str, Any]) -> int:
    return len(encode(own)) if own else 0


def _kib(size: int) -> str:
    return f"{size / 1024:.0f} KiB"


__all__ = ["CONTEXT_BYTES", "LAYER_BYTES", "beyond_layer", "context_bytes", "within_context"]
