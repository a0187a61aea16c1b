"""What all tests share: the same examples in every run, and an environment without our variables."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# The same inputs every time: a failure seen once is seen again. `HYPOTHESIS_PROFILE=explore` looks further.
# "too slow" is judged by the clock, and a busy machine must not fail a test
settings.register_profile(
    "steady", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore", max_examples=2_000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("MAINSTAY_")]:
        monkeypatch.delenv(variable)
