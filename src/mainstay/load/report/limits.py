"""The limits of thresholds, as far as they can be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ...errors import InvalidInput
from ..stats.grammar import meaning_of, parse
from ..stats.model import Summary
from ..stats.tags import tags_text
from .svg import ChartMark

Scale = Literal["latency", "response", "rate", ""]


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of a threshold."""

    text: str
    """the threshold without its step and its window"""
    scale: Scale
    """the chart that shows it"""
    of: str
    """the step, or the tags of several; empty for all"""
    value: float
    most: float | None = None
    """the highest possible value: 1 for a share"""


def limits_of(summary: Summary) -> list[Limit | None]:
    """The limit of each threshold; None for a threshold that another version wrote in another form."""
    return [_limit(one.text) for one in summary.thresholds]


def marks_for(limits: Sequence[Limit | None], scale: Scale, *steps: str) -> list[ChartMark]:
    """The limits of a step by any of its names; without a name, those of all steps together."""
    drawn = (one for one in limits if one is not None and one.scale == scale)
    return [ChartMark(name=one.text, value=one.value) for one in drawn if one.of in (steps or ("",))]


def _limit(text: str) -> Limit | None:
    try:
        threshold = parse(text)
        meaning = meaning_of(threshold)
    except InvalidInput:
        return None
    scale: Scale = ""
    if meaning.measure.source in ("service", "ok"):
        scale = "latency"
    elif meaning.measure.source == "response":
        scale = "response"
    elif meaning.measure.source == "calls" and meaning.reading == "per_s":
        scale = "rate"
    most = 1.0 if meaning.reading == "share" else None
    short = f"{threshold.metric} {threshold.op} {threshold.limit}"
    of = tags_text(threshold.tags) if threshold.tags else threshold.of or ""
    return Limit(text=short, scale=scale, of=of, value=meaning.limit, most=most)
