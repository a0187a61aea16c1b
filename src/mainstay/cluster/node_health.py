"""How loaded a node or a manager is. Pure functions.

>>> state = OverloadState()
>>> for cpu in (0.9, 0.9, 0.99):
...     state = next_overload(state, cpu=cpu, memory=0.2)
>>> state.level
'stressed'
"""

from __future__ import annotations

import msgspec

from ..bus import LEVELS, OverloadLevel

#: from which share of the processors and of the memory it is busy, stressed, overloaded
SHARES = (0.70, 0.85, 0.95)
#: and from which time of its answers
LATENCIES_S = (0.2, 0.5, 2.0)
#: how many samples in a row have to agree before the level changes: a single peak is not an overload
SAMPLES = 3


class OverloadState(msgspec.Struct, frozen=True, kw_only=True):
    """The overload level of a node or a manager, and the last samples that do not agree with it."""

    level: OverloadLevel = "normal"
    differing: tuple[int, ...] = ()
    """the levels of the last samples, all above or all below `level`"""


def sample_level(*, cpu: float, memory: float, latency_s: float = 0.0) -> OverloadLevel:
    """The level of one sample: that of its worst value.

    >>> sample_level(cpu=0.2, memory=0.86)
    'stressed'
    """
    load = max(cpu, memory)
    reached = max(sum(load >= share for share in SHARES), sum(latency_s >= limit for limit in LATENCIES_S))
    return LEVELS[reached]


def next_overload(state: OverloadState, *, cpu: float, memory: float, latency_s: float = 0.0) -> OverloadState:
    """The state after one more sample. The level changes after three samples in a row above it, or below it: to the
    nearest of their levels."""
    now = LEVELS.index(state.level)
    sample = LEVELS.index(sample_level(cpu=cpu, memory=memory, latency_s=latency_s))
    if sample == now:
        return OverloadState(level=state.level)
    same_side = bool(state.differing) and (state.differing[0] > now) == (sample > now)
    differing = (*state.differing, sample) if same_side else (sample,)
    if len(differing) < SAMPLES:
        return OverloadState(level=state.level, differing=differing)
    return OverloadState(level=LEVELS[min(differing) if sample > now else max(differing)])


def is_degraded(level: OverloadLevel) -> bool:
    """Whether a node with this level gets new work only where no other one has room.

    >>> is_degraded("busy"), is_degraded("stressed")
    (False, True)
    """
    return LEVELS.index(level) >= LEVELS.index("stressed")


__all__ = [
    "LATENCIES_S",
    "SAMPLES",
    "SHARES",
    "OverloadState",
    "is_degraded",
    "next_overload",
    "sample_level",
]
