"""When a node counts as away and as dead: all numbers in one object, with presets and environment variables.

>>> LivenessSettings.from_env({"MAINSTAY_CLUSTER_CLOSED": "40s"}).closed_s
40.0
>>> LivenessSettings.from_env({"MAINSTAY_CLUSTER_PRESET": "local"}).beat_s
1.0
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import msgspec

from ..clock import duration_text, seconds
from ..errors import InvalidInput, UnknownOption

PREFIX = "MAINSTAY_CLUSTER_"
PRESET_VARIABLE = f"{PREFIX}PRESET"
#: those whose value is a number; all others are durations with a unit
_NUMBERS: Mapping[str, type] = MappingProxyType({"mass_nodes": int, "mass_part": float, "ask_tries": int})


class LivenessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long the silence of a node may last, and what follows. Managers and nodes of a cluster need the same values.

    A node without contact to any manager stops its work after `isolation_s`, before a manager closes it and its work
    begins elsewhere (`closed_s`).
    """

    beat_s: float = 2.0
    """interval of the heartbeats of a node"""
    away_s: float = 10.0
    """a node that no manager has heard for this long is away: it gets no new work and keeps what it has"""
    isolation_s: float = 20.0
    """a node that has heard no manager for this long stops its work, by its own clock"""
    closed_s: float = 25.0
    """a node that no manager has heard for this long, and that does not answer, is closed: its work is taken back"""
    ask_s: float = 20.0
    """a node that has been silent for this long is asked, by the leader and through a second manager"""
    ask_every_s: float = 2.5
    """how often it is asked again if a result is missing"""
    ask_timeout_s: float = 2.0
    """how long an answer of a node may take"""
    ask_tries: int = 3
    """if no second manager could ask after this number of tries, the result of the leader decides"""
    heard_every_s: float = 1.0
    """how often a manager tells the others which nodes it has heard"""
    manager_silent_s: float = 5.0
    """a manager that has not been heard for this long is not asked; one that does not hear itself judges no node"""
    mass_part: float = 0.5
    """if more than this part of the nodes becomes silent within `mass_window_s`, the fault is probably ours"""
    mass_nodes: int = 3
    """and if they are at least this many"""
    mass_window_s: float = 10.0
    hold_s: float = 60.0
    """how long no node is judged after a mass silence; proven deaths are excepted"""
    contest_s: float = 5.0
    """another host with the name of a node replaces it only after the node was silent for this long"""
    hearsay_warning_s: float = 60.0
    """warn if other managers hear a node for this long and this manager does not"""
    hearsay_kept_s: float = 180.0
    """how long such a node is remembered after the last word of it"""
    record_kept_s: float = 900.0
    """how long a closed node is remembered"""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if not getattr(self, field) > 0:
                raise InvalidInput(option_of(field), f"{getattr(self, field)} is not above zero")
        order = ("beat_s", "away_s", "isolation_s", "closed_s")
        for shorter, longer in pairwise(order):
            self._in_order(shorter, longer)
        self._in_order("ask_s", "closed_s")

    def _in_order(self, shorter: str, longer: str) -> None:
        low, high = getattr(self, shorter), getattr(self, longer)
        if low >= high:
            rule = f"{duration_text(high)} is not longer than {option_of(shorter)} ({duration_text(low)})"
            raise InvalidInput(option_of(longer), f"{rule}; live nodes would lose their work")

    @classmethod
    def from_env(cls, environ: Mapping[str, str], *, preset: str | None = None) -> LivenessSettings:
        """Settings from the environment, over a preset: `preset`, or that of `MAINSTAY_CLUSTER_PRESET`, or lan.

        Variables of the prefix that are not about liveness are left to others.

        >>> LivenessSettings.from_env({"MAINSTAY_CLUSTER_AWAY": "30s"})
        Traceback (most recent call last):
        mainstay.errors.InvalidInput: isolation: 20s is not longer than away (30s); live nodes would lose their work
        """
        name = preset or environ.get(PRESET_VARIABLE) or "lan"
        if name not in PRESETS:
            raise UnknownOption(name, PRESETS)
        values = msgspec.structs.asdict(PRESETS[name])
        for field in cls.__struct_fields__:
            variable = f"{PREFIX}{option_of(field).upper()}"
            if (text := environ.get(variable)) is not None:
                values[field] = _parsed(variable, field, text)
        return cls(**values)


def option_of(field: str) -> str:
    """The public name of a setting, without the unit."""
    return field.removesuffix("_s")


def _parsed(variable: str, field: str, text: str) -> Any:
    number = _NUMBERS.get(field)
    if number is None:
        return seconds(text, field=variable)
    try:
        return number(text)
    except ValueError:
        raise InvalidInput(variable, f"{text!r} is not a number") from None


#: local: all on one machine; lan: one datacenter; wan: nodes on a slow or lossy network
PRESETS: Mapping[str, LivenessSettings] = MappingProxyType(
    {
        "local": LivenessSettings(
            beat_s=1.0, away_s=4.0, isolation_s=8.0, ask_s=8.0, closed_s=10.0, ask_every_s=1.0, ask_timeout_s=0.8
        ),
        "lan": LivenessSettings(),
        "wan": LivenessSettings(
            beat_s=4.0,
            away_s=20.0,
            isolation_s=40.0,
            ask_s=38.0,
            closed_s=50.0,
            ask_every_s=6.0,
            ask_timeout_s=5.0,
            manager_silent_s=10.0,
            mass_window_s=20.0,
            contest_s=12.0,
        ),
    }
)

__all__ = ["PREFIX", "PRESETS", "PRESET_VARIABLE", "LivenessSettings", "option_of"]
