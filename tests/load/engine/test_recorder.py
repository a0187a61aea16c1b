"""What is made of the calls of a tenth of a second."""

from __future__ import annotations

from mainstay.load.engine.recorder import StepRecorder
from mainstay.load.results import Opening, Result


def test_a_call_that_waited_for_a_connection_of_another_has_not_connected() -> None:
    recorder = StepRecorder("Shop", "browse", open_model=False)
    recorder.note(Result(started=1.0, written=1.5, first=1.6, ended=1.7, opening=Opening(0.1, 0.2, 0.1)), 0.0)
    recorder.note(Result(started=1.0, written=1.5, first=1.6, ended=1.7, opening=Opening(0.4, 0.0, 0.0)), 0.0)

    taken = recorder.take()

    assert taken is not None
    counts = {name: sketch.count for name, sketch in taken.phases.items()}
    assert counts == {"blocked": 2, "connect": 1, "tls": 1, "send": 2, "wait": 2, "receive": 2}
