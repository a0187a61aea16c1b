"""Work beside the loop: in order, and given up with the program."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from mainstay.load.blocking_work import BackgroundThread


def test_things_are_done_in_the_order_they_were_submitted() -> None:
    aside, gate, done = BackgroundThread(), threading.Event(), list[int]()

    waits = aside.submit(gate.wait)
    futures: list[Future[None]] = [aside.submit(done.append, n) for n in range(50)]
    assert done == []
    gate.set()
    futures[-1].result()

    assert (waits.result(), done) == (True, list(range(50)))


def test_what_is_raised_is_told_and_what_comes_after_is_done() -> None:
    aside = BackgroundThread()

    with pytest.raises(ZeroDivisionError):
        aside.submit(divmod, 1, 0).result()
    assert aside.submit(divmod, 7, 2).result() == (3, 1)


def test_what_is_cancelled_before_its_turn_is_not_done() -> None:
    aside, gate, done = BackgroundThread(), threading.Event(), list[int]()

    aside.submit(gate.wait)
    cancelled, last = aside.submit(done.append, 1), aside.submit(done.append, 2)
    cancelled.cancel()
    gate.set()
    last.result()

    assert done == [2]
