"""How many windows a slice sends at once: the leader says it with each ping, and a slice without pings forgets it."""

from __future__ import annotations

#: buckets in one message, by how much there is to do. Each ends where those before it may end, so the messages of all
#: slices end with the same bucket, and none waits for another
STEPS = (2, 5, 10, 20)
#: of a slice that has no word of its leader. A message costs the bus, the node and the leader more than a window does
TOGETHER = STEPS[0]
#: how long the word of a leader holds, in seconds
HOLDS_S = 5.0
#: shares of the queue of windows from which there is more to do
_SHARES = (0.70, 0.85, 0.95)
#: slices from which there is more to do: each sends ten windows a second, and one takes some 0.1 ms
_SLICES = (100, 400)


def buckets_together(*, level: int, queue_share: float, slices: int) -> int:
    """How many buckets the slices of a run put into one message. `level`: how overloaded the manager is, from 0 (not
    at all) to 3; `queue_share`: how full its queue of windows is; `slices`: of the run.

    >>> buckets_together(level=0, queue_share=0.1, slices=8)
    2
    >>> buckets_together(level=0, queue_share=0.9, slices=8)
    10
    """
    by_queue = sum(queue_share >= share for share in _SHARES)
    by_slices = sum(slices >= least for least in _SLICES)
    return STEPS[min(max(level, by_queue, by_slices), len(STEPS) - 1)]


__all__ = ["HOLDS_S", "STEPS", "TOGETHER", "buckets_together"]
