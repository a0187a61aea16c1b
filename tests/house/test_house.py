"""The numbers of the house only go down, and its exceptions are needed."""

from __future__ import annotations

import pytest

from tests.house import names
from tests.house.measures import MEASURES, Measure
from tests.house.reasons import GERUND_MODULES, SHARED_CLASS_NAMES

KEPT = [measure for measure in MEASURES if measure.record is not None]


@pytest.mark.parametrize("measure", KEPT, ids=lambda measure: measure.name.replace(" ", "-"))
def test_a_number_of_the_house_does_not_rise(measure: Measure) -> None:
    found = measure.take()

    assert found.value <= (measure.record or 0), "\n".join(found.details)


def test_every_exception_is_needed_and_has_a_reason() -> None:
    assert names.unused_reasons() == []
    assert all(reason for listed in (SHARED_CLASS_NAMES, GERUND_MODULES) for reason in listed.values())
