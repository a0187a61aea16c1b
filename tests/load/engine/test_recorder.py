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


def test_an_answer_that_came_before_all_was_sent_has_no_negative_phase() -> None:
    recorder = StepRecorder("Shop", "browse", open_model=False)
    recorder.note(Result(started=1.0, written=1.5, first=1.2, ended=1.6), 0.0)

    taken = recorder.take()

    assert taken is not None
    assert {name: sketch.low for name, sketch in taken.phases.items()}["wait"] == 0.0


def test_bytes_of_a_call_that_failed_count() -> None:
    recorder = StepRecorder("Shop", "browse", open_model=False)
    recorder.raised("closed", 0.1, 0.0, sent=120, received=30)
    recorder.raised("refused", 0.1, 0.0)

    taken = recorder.take()

    assert taken is not None
    assert taken.failed is not None
    assert (taken.failed.count, taken.sent, taken.received, taken.ok) == (2, 120, 30, None)
