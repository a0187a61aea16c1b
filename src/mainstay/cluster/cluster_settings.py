"""The settings of the programs of a cluster: one object, from a preset and `MAINSTAY_CLUSTER_*`.

>>> settings = ClusterSettings.from_env({"MAINSTAY_CLUSTER_PRESET": "wan", "MAINSTAY_CLUSTER_JOIN_PROBE": "1s"})
>>> settings.liveness.closed_s, settings.join.probe_s
(50.0, 1.0)
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping

import msgspec

from ..bus.nats import JoinSettings
from .liveness_settings import PREFIX, PRESET_VARIABLE, LivenessSettings, option_of

log = logging.getLogger("mainstay.cluster")

#: variables of the prefix that are no settings of this object
_OTHERS = (f"{PREFIX}BLOBS", f"{PREFIX}URL")


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a node counts as dead, and how a program finds the bus."""

    liveness: LivenessSettings = LivenessSettings()
    join: JoinSettings = JoinSettings()

    @classmethod
    def from_env(cls, environ: Mapping[str, str], *, preset: str | None = None) -> ClusterSettings:
        """Settings from the environment, over a preset: `preset`, or that of `MAINSTAY_CLUSTER_PRESET`, or lan."""
        for name, meant in misspelled(environ).items():
            log.warning("the variable %s is not known; did you mean %s?", name, meant)
        return cls(liveness=LivenessSettings.from_env(environ, preset=preset), join=JoinSettings.from_env(environ))


def variables() -> list[str]:
    """All variables that are read, by name."""
    liveness = [f"{PREFIX}{option_of(field).upper()}" for field in LivenessSettings.__struct_fields__]
    return sorted([PRESET_VARIABLE, *_OTHERS, *liveness, *JoinSettings.variables().values()])


def misspelled(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that look like one that is read, and that variable. Others with the prefix may be another program's:
    Kubernetes makes some for a service that is named mainstay-cluster.

    >>> misspelled({"MAINSTAY_CLUSTER_CLOSE": "40s", "MAINSTAY_CLUSTER_SERVICE_HOST": "10.0.0.1"})
    {'MAINSTAY_CLUSTER_CLOSE': 'MAINSTAY_CLUSTER_CLOSED'}
    """
    known = variables()
    found: dict[str, str] = {}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known:
            continue
        short = {each.removeprefix(PREFIX): each for each in known}
        if close := difflib.get_close_matches(name.removeprefix(PREFIX), short, n=1, cutoff=0.8):
            found[name] = short[close[0]]
    return found


__all__ = ["ClusterSettings", "misspelled", "variables"]
