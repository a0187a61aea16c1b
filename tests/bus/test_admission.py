"""What an overloaded manager still takes."""

from __future__ import annotations

import pytest

from mainstay.bus import LEVELS, Admission, CallRate, MessageClass, OverloadLevel, is_shed
from mainstay.errors import Overloaded, RateLimited

CONTROL, DISPATCH, DATA, TELEMETRY = MessageClass


@pytest.mark.parametrize(
    ("level", "taken"),
    [
        ("normal", [CONTROL, DISPATCH, DATA, TELEMETRY]),
        ("busy", [CONTROL, DISPATCH, DATA]),
        ("stressed", [CONTROL, DISPATCH]),
        ("overloaded", [CONTROL]),
    ],
)
def test_control_is_answered_at_every_level_and_each_other_class_is_refused_from_its_level_on(
    level: OverloadLevel, taken: list[MessageClass]
) -> None:
    admission = Admission(level=lambda: level)
    for kind in MessageClass:
        assert is_shed(kind, level) == (kind not in taken)
        if kind in taken:
            admission.check(kind, "operator:ann", 0.0)
        else:
            with pytest.raises(
                Overloaded, match=rf"the manager is {level} and takes no {kind} requests; try again in 1 s"
            ):
                admission.check(kind, "operator:ann", 0.0)
    assert list(admission.shed) == [kind for kind in MessageClass if kind not in taken]
    assert level in LEVELS


def test_a_greedy_client_is_limited_and_the_others_are_not() -> None:
    admission = Admission(rates={DATA: CallRate(10.0, 5.0), DISPATCH: CallRate(10.0, 5.0)})
    for _ in range(5):
        admission.check(DATA, "operator:greedy", 0.0)
    with pytest.raises(RateLimited) as limited:
        admission.check(DATA, "operator:greedy", 0.0)

    assert limited.value.retry_after_s == pytest.approx(0.1)
    assert str(limited.value) == "too many data requests of operator:greedy; try again in 0.1 s"
    admission.check(DISPATCH, "operator:greedy", 0.0)
    admission.check(DATA, "operator:ann", 0.0)
    for _ in range(1000):
        admission.check(CONTROL, "operator:greedy", 0.0)
    admission.check(DATA, "operator:greedy", limited.value.retry_after_s)
    assert (admission.limited, admission.shed) == ({DATA: 1}, {})
