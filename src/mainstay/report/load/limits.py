"""The limits that thresholds set, as far as they can be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ...load.stats.model import Summary
from .svg import Mark

Scale = Literal["latency", "rate", "other"]


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What a threshold compares with."""

    text: str
    scale: Scale
    """on which chart it has its place"""
    of: str
    """the step; empty for all"""
    value: float


def limits_of(summary: Summary) -> list[Limit | None]:
    """For each threshold of a summary its limit."""
    return [None for one in summary.thresholds]


def marks_for(limits: Sequence[Limit | None], scale: Scale, step: str = "") -> list[Mark]:
    """Those of one step, or those of all steps together."""
    found = (one for one in limits if one is not None and one.scale == scale)
    return [Mark(name=one.text, value=one.value) for one in found if one.of.rpartition(".")[2] == step]
