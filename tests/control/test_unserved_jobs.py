"""Jobs that no live worker takes."""

from __future__ import annotations

from mainstay.control.unserved_jobs import unserved
from mainstay.model import PLACE_QUEUE, Offer, Session, private_queue
from mainstay.stores import QueueStats, Stats

DAY = Session(id="day", beat_ms=0, offer=Offer(queues=("default", "mail"), tasks={"a": {}, "batch:s": {}}))


def stats(routed: dict[str, dict[str, int]] | None = None, **pending: int) -> Stats:
    queues = {name: QueueStats(counts={"pending": n, "succeeded": 9}) for name, n in pending.items()}
    return Stats(at_ms=0, queues=queues, rates={}, sessions=1, aside=0, routed=routed or {})


def told(found: Stats, *sessions: Session, lease_ms: int = 0) -> list[str]:
    return [each.text for each in unserved(found, sessions, lease_ms)]


def test_a_queue_that_no_worker_listens_on_is_named() -> None:
    assert told(stats(night=1, mail=5, other=0), DAY) == ["no live worker listens on queue night: 1 job waits"]


def test_a_task_that_no_worker_knows_is_named() -> None:
    routed = {"mail": {"b": 12, "a": 1, "batch:t": 2}}
    assert told(stats(routed, mail=15), DAY) == [
        "no live worker knows b: 12 jobs wait in queue mail",
        "no live worker knows batch:t: 2 jobs wait in queue mail",
    ]


def test_one_of_a_queue_that_no_worker_listens_on_is_named_once() -> None:
    assert told(stats({"night": {"b": 2}}, night=2), DAY) == ["no live worker listens on queue night: 2 jobs wait"]


def test_nothing_is_said_while_a_worker_does_not_say_what_it_serves() -> None:
    older = Session(id="older", beat_ms=0)
    assert told(stats({"mail": {"b": 1}}, night=1), DAY, older) == []
    assert told(stats(night=1), DAY, older, lease_ms=60_000) == []


def test_a_worker_that_drains_or_is_dead_does_not_count() -> None:
    night = Offer(queues=("night",), tasks={"a": {}})
    draining = Session(id="n", beat_ms=0, offer=night, draining_ms=1)
    dead = Session(id="n", beat_ms=0, offer=night, dead=True)
    assert told(stats(night=3), DAY, draining, dead) == ["no live worker listens on queue night: 3 jobs wait"]


def test_the_queue_of_one_load_run_is_its_own_matter() -> None:
    assert told(stats(**{private_queue("3f9c"): 1}), DAY) == []


def test_jobs_that_are_placed_need_a_node_and_no_worker_of_a_queue() -> None:
    waiting = stats(**{PLACE_QUEUE: 2})
    node = Session(id="n", beat_ms=0, node="n1", offer=Offer(tasks={"node:compact:local": {}}))
    assert told(waiting, DAY) == ["no node is active: 2 jobs wait to be placed"]
    assert told(waiting, DAY, node) == []
