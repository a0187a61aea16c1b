"""What managers accept from a node: the bus proves who sent a message, and nothing about its content.

A node that listed the sessions of another one could have that one's work taken back with its own end.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..token_bucket import TokenBuckets
from .member_messages import NodeEnd
from .status import NodeBeat

#: sessions of one node: its engines
_SESSIONS = 256
_RUNNING = 100
_LABELS, _LABEL = 64, 64
_WORD, _SENTENCE = 255, 500
_NUMBER = 1 << 53
#: messages of a node: this many at once, and then this many a second. A beat comes every 2 s
_BURST, _EACH_S = 20.0, 5.0


def checked_beat(beat: NodeBeat, node: str) -> NodeBeat | None:
    """The beat with the sessions of that node only; None: it is not one of that node, or too large.

    >>> beat = NodeBeat(node="n1", number=1, incarnation="a", sessions=("n1.5", "n2.5", "n1.x.5"))
    >>> checked_beat(beat, "n1").sessions, checked_beat(beat, "n2")
    (('n1.5',), None)
    """
    words = (beat.host, beat.version, beat.target, beat.digest, beat.incarnation)
    sizes = (
        len(beat.sessions) <= _SESSIONS,
        len(beat.running) <= _RUNNING and all(len(each) <= _WORD for each in beat.running),
        len(beat.labels) <= _LABELS,
        all(len(key) <= _LABEL and len(value) <= _LABEL for key, value in beat.labels.items()),
        all(len(word) <= _WORD for word in words),
        all(0 <= each < _NUMBER for each in (beat.number, beat.pid, beat.cores, beat.running_count)),
    )
    if beat.node != node or not beat.incarnation or not all(sizes):
        return None
    return msgspec.structs.replace(beat, sessions=own_sessions(node, beat.sessions))


def checked_end(end: NodeEnd, node: str) -> NodeEnd:
    """The end of a start of a node, with the sessions of that node only."""
    return NodeEnd(
        incarnation=end.incarnation[:_WORD],
        how=end.how[:_SENTENCE],
        sessions=own_sessions(node, end.sessions[:_SESSIONS]),
    )


def own_sessions(node: str, sessions: Sequence[str]) -> tuple[str, ...]:
    """Those whose id begins with exactly this name."""
    return tuple(each for each in sessions if len(each) <= _WORD and each.rpartition(".")[0] == node)


class NodeRates:
    """How many messages of each node are read. The rest is dropped: a node that floods delays itself."""

    def __init__(self) -> None:
        self._buckets = TokenBuckets(_EACH_S, burst=_BURST)

    def admits(self, node: str, now_s: float) -> bool:
        """Whether to read a message of a node now."""
        return self._buckets.take(node, now_s) == 0


__all__ = ["NodeRates", "checked_beat", "checked_end", "own_sessions"]
