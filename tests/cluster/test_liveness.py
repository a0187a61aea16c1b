"""Settings of liveness, versions that work together, and the load of nodes."""

from __future__ import annotations

import pytest

from mainstay.cluster.liveness_settings import PRESETS, LivenessSettings
from mainstay.cluster.node_health import OverloadState, next_overload, sample_level
from mainstay.errors import InvalidInput, UnknownOption
from mainstay.model import Settings
from mainstay.stores.remote import compatible


def test_the_defaults_are_those_of_the_lan() -> None:
    assert LivenessSettings.from_env({}) == LivenessSettings() == PRESETS["lan"]


def test_a_preset_is_changed_by_variables() -> None:
    found = LivenessSettings.from_env(
        {"MAINSTAY_CLUSTER_PRESET": "wan", "MAINSTAY_CLUSTER_CLOSED": "2m", "MAINSTAY_CLUSTER_MASS_NODES": "5"}
    )
    assert (found.beat_s, found.closed_s, found.mass_nodes) == (4.0, 120.0, 5)
    assert LivenessSettings.from_env({"MAINSTAY_CLUSTER_PRESET": "wan"}, preset="local").beat_s == 1.0


@pytest.mark.parametrize(
    ("variable", "value"),
    [("CLOSED", "25"), ("CLOSED", "15s"), ("AWAY", "0s"), ("MASS_NODES", "many"), ("ASK", "30s"), ("BEAT", "11s")],
)
def test_a_value_that_would_cost_live_nodes_their_work_is_refused(variable: str, value: str) -> None:
    with pytest.raises(InvalidInput):
        LivenessSettings.from_env({f"MAINSTAY_CLUSTER_{variable}": value})


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(UnknownOption, match="lan"):
        LivenessSettings.from_env({"MAINSTAY_CLUSTER_PRESET": "lam"})


def test_the_settings_of_an_app_leave_the_variables_of_the_cluster_alone() -> None:
    assert Settings.from_env({"MAINSTAY_CLUSTER_CLOSED": "40s"}) == Settings()


@pytest.mark.parametrize(
    ("ours", "theirs", "works"),
    [
        ("1.4.0", "1.4.7", True),
        ("1.4.0", "1.3.0", True),
        ("1.3.0", "1.4.0", True),
        ("1.4.0", "1.2.9", False),
        ("1.0.0", "2.0.0", False),
        ("2.0.0", "1.9.0", False),
        ("0.3.0", "0.2.1", True),
        ("0.3.0", "0.1.0", False),
        ("0.9.0", "1.0.0", False),
        ("1.10.0", "1.9.0", True),
        ("1.10.0", "1.1.0", False),
        ("1.4.0.dev2+gabc", "1.4.0", True),
        ("", "1.4.0", False),
        ("odd", "odd", True),
    ],
)
def test_versions_with_the_same_major_and_a_neighbouring_minor_work_together(
    ours: str, theirs: str, works: bool
) -> None:
    assert compatible(ours, theirs) is works
    assert compatible(theirs, ours) is works


def levels(*samples: float) -> list[str]:
    found: list[str] = []
    state = OverloadState()
    for cpu in samples:
        state = next_overload(state, cpu=cpu, memory=0.1)
        found.append(state.level)
    return found


def test_the_level_rises_after_three_samples() -> None:
    assert levels(0.96, 0.96, 0.96) == ["normal", "normal", "overloaded"]


def test_one_peak_is_not_an_overload() -> None:
    assert set(levels(0.2, 1.0, 0.2, 1.0, 1.0, 0.2)) == {"normal"}


def test_the_level_falls_after_three_samples() -> None:
    assert levels(*[0.96] * 3, 0.1, 0.1, 0.1)[-2:] == ["overloaded", "normal"]


def test_the_level_changes_to_the_nearest_of_the_samples() -> None:
    assert levels(0.99, 0.75, 0.99)[-1] == "busy"
    assert levels(*[0.99] * 3, 0.1, 0.87, 0.1)[-1] == "stressed"


@pytest.mark.parametrize(
    ("load", "level"),
    [(0.69, "normal"), (0.70, "busy"), (0.84, "busy"), (0.85, "stressed"), (0.95, "overloaded"), (1.0, "overloaded")],
)
def test_the_level_of_a_sample_is_that_of_its_worst_value(load: float, level: str) -> None:
    assert sample_level(cpu=load, memory=0) == sample_level(cpu=0, memory=load) == level
    assert sample_level(cpu=0, memory=0, latency_s=0.5) == "stressed"
