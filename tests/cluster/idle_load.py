"""The load of a manager that has little to do, for tests whose manager must not refuse calls on a busy machine."""

from __future__ import annotations

from mainstay.cluster.manager_load import LoadSample


def idle(late_s: float) -> LoadSample:
    """A sample for `Manager(sample_load=...)`."""
    del late_s
    return LoadSample(0.0, 0.0, 0.0)


__all__ = ["idle"]
