"""A store agrees with the model, whatever happens to both."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.adapters import Adapter
from tests.conformance.placed_model import PlacedBesideModel


@pytest.mark.slow
@pytest.mark.timeout(900)  # a minute on an idle machine; a busy one must not fail it
def test_a_store_agrees_with_the_model_whatever_happens(adapter: Adapter) -> None:
    machine = type("Machine", (PlacedBesideModel,), {"adapter": adapter})
    # a step of a server's takes several times as long as one of a file
    examples = {"memory": 100, "registry": 8}.get(adapter.name, 12)
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=40, deadline=None))
