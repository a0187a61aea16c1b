"""History: ten minutes closely, a day roughly, and no more than that in memory."""

from __future__ import annotations

from mainstay.web.live.history import History
from mainstay.web.live.snapshot import QueueSnapshot, Snapshot


def at(second: float, *, waiting: int = 0) -> Snapshot:
    queue = QueueSnapshot(name="mail", counts={"pending": waiting}, waiting=waiting)
    return Snapshot(store="main", stats_ms=round(second * 1000), waiting=waiting, queues=[queue])


def test_samples_are_two_seconds_apart_however_often_one_looks() -> None:
    history = History()
    for n in range(100):
        history.add(at(1000 + n * 0.1))
    assert [sample.at_ms for sample in history.samples()] == [1000_000 + n * 2000 for n in range(5)]


def test_a_day_and_ten_minutes_are_kept_in_order() -> None:
    history = History()
    for n in range(3 * 24 * 3600 // 2):
        history.add(at(n * 2.0))
    times = [sample.at_ms for sample in history.samples()]
    assert times == sorted(set(times))
    assert len(times) <= 300 + 288
    assert times[-1] - times[0] > 23 * 3600_000
    assert times[-1] - times[-300] == 299 * 2000


def test_a_sample_tells_the_depth_of_each_queue() -> None:
    history = History()
    history.add(at(1000, waiting=7))
    (sample,) = history.samples()
    assert (sample.waiting, sample.queues) == (7, {"mail": 7})


def test_a_clock_that_was_set_back_does_not_stop_the_samples() -> None:
    history = History()
    history.add(at(5000))
    history.add(at(1000))
    assert len(history.samples()) >= 1
    assert history.samples()[-1].at_ms == 1000_000
