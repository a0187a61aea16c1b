"""A metered store behaves like the one inside, and its numbers are those of the audit trail."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from prometheus_client import CollectorRegistry

from mainstay.control import Completion, Control, Failure, error_info
from mainstay.errors import InvalidInput, KeyConflict, MissingExtra, SessionLost
from mainstay.stores import JobStore, open_store
from mainstay.stores.change_check import moves
from mainstay.stores.memory.wake import MemoryWake
from mainstay.stores.metrics import COUNTED, MOST_LABELS, MeteredStore, metered, wanted
from mainstay.testing import MemoryStore, VirtualClock
from tests.control.check.test_random import STEPS, Life

KEPT = [step for step in STEPS if step != "trim"]  # trimming takes the trail away, not the numbers
Labels = tuple[tuple[str, str], ...]


class Meter:
    """A memory store with its numbers."""

    def __init__(self, *, names: bool = False, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.clock = VirtualClock()
        self.inside = MemoryStore(self.clock)
        self.store = metered(self.inside, self.registry, names=names)
        self.control = Control(self.store, rng=random.Random(1))

    def value(self, name: str, /, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    def samples(self, name: str) -> dict[Labels, float]:
        return dict(_samples(self.registry, name))


def _samples(registry: CollectorRegistry, name: str) -> Iterator[tuple[Labels, float]]:
    for family in registry.collect():
        for sample in family.samples:
            if sample.name == name:
                yield tuple(sorted(sample.labels.items())), sample.value


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(KEPT), st.integers(0, 5)), max_size=40))
def test_the_counted_moves_are_those_of_the_audit_trail(taken: list[tuple[str, int]]) -> None:
    async def story() -> None:
        life, registry = Life(), CollectorRegistry()
        life.control = Control(metered(life.store, registry), rng=random.Random(1))
        await life.open()
        for what, n in taken:
            await life.step(what, n)

        trail = Counter(
            (event.source or "new", event.to)
            for found in await life.store.audit(limit=1000)
            for event in found.events
            if moves(event)
        )
        counted: Counter[tuple[str, str]] = Counter()
        for labels, value in _samples(registry, "mainstay_transitions_total"):
            counted[dict(labels)["from"], dict(labels)["to"]] += int(value)
        assert counted == trail

    asyncio.run(story())


async def test_moves_that_the_store_makes_by_itself_are_counted() -> None:
    meter = Meter()
    first = await meter.control.jobs.submit("a", {})
    await meter.control.jobs.submit("b", {}, after=[first.id], queue="later")
    session = await meter.control.claims.open_session()
    (job,) = await meter.control.claims.claim(["default"], session.id, 1)
    await meter.control.attempts.complete([Completion(job)])

    labels = {"kind": "task", "queue": "later", "name": ""}
    assert meter.value("mainstay_transitions_total", **labels, **{"from": "scheduled", "to": "pending"}) == 1


async def test_the_seconds_of_a_state_are_told_when_it_is_left() -> None:
    meter = Meter()
    await meter.control.jobs.submit("a", {}, delay="10s")
    session = await meter.control.claims.open_session(lease_s=1000)
    meter.clock.advance(12)
    (job,) = await meter.control.claims.claim(["default"], session.id, 1)
    meter.clock.advance(3)
    await meter.control.attempts.complete([Completion(job)])

    def seconds(status: str) -> float:
        return meter.value("mainstay_state_seconds_sum", kind="task", queue="default", status=status)

    assert (seconds("scheduled"), seconds("pending"), seconds("running")) == (12, 0, 3)
    assert meter.value("mainstay_pickup_seconds_sum", queue="default") == 2


async def test_names_of_tasks_are_told_only_if_asked_for() -> None:
    plain, named = Meter(), Meter(names=True)
    for meter in (plain, named):
        await meter.control.jobs.submit("mail.send", {})

    told = [dict(labels)["name"] for meter in (plain, named) for labels in meter.samples("mainstay_transitions_total")]
    assert told == ["", "mail.send"]


async def test_a_label_has_few_values_however_many_queues_there_are() -> None:
    meter = Meter()
    for n in range(MOST_LABELS + 5):
        await meter.control.jobs.submit("a", {}, queue=f"q{n}")

    found = {dict(labels)["queue"]: value for labels, value in meter.samples("mainstay_transitions_total").items()}
    assert len(found) == MOST_LABELS + 1
    assert found["other"] == 5


async def test_conflicts_ghosts_and_claims_are_counted() -> None:
    meter = Meter()
    await meter.control.jobs.submit("a", {})
    old = await meter.control.claims.open_session()
    (job,) = await meter.control.claims.claim(["default"], old.id, 5)
    assert await meter.control.claims.claim(["default"], old.id, 5) == []
    meter.clock.advance(9)
    await Control(meter.inside).sweeper.sweep()  # its session was silent for too long

    await meter.control.attempts.complete([Completion(job)])
    await meter.control.claims.report([meter.control.claims.progress(job, 1)])

    assert meter.value("mainstay_ghosts_refused_total", method="apply") == 1
    assert meter.value("mainstay_ghosts_refused_total", method="report") == 1
    assert (meter.value("mainstay_claims_total", found="yes"), meter.value("mainstay_claims_total", found="no")) == (
        1,
        1,
    )
    assert meter.value("mainstay_batch_size_sum", method="claim") == 1
    assert meter.value("mainstay_batch_size_count", method="claim") == 2


async def test_a_change_that_came_second_is_a_conflict() -> None:
    meter = Meter()
    made = await meter.control.jobs.submit("a", {})
    session = await meter.control.claims.open_session()
    (job,) = await meter.control.claims.claim(["default"], session.id, 1)
    await meter.control.operations.cancel(made.id, actor="ann")  # the worker does not know yet
    await meter.control.attempts.fail([Failure(job, error_info(ValueError("no")))])

    assert meter.value("mainstay_conflicts_total") >= 1


async def test_calls_are_timed_and_errors_counted_by_their_code() -> None:
    meter = Meter()
    await meter.control.jobs.submit("a", {"n": 1}, key="k")
    with pytest.raises(KeyConflict):
        await meter.control.jobs.submit("a", {"n": 2}, key="k")
    with pytest.raises(SessionLost):
        await meter.store.claim(["default"], "nobody", 1)

    assert meter.value("mainstay_store_errors_total", method="insert", code="key_conflict") == 1
    assert meter.value("mainstay_store_errors_total", method="claim", code="session_lost") == 1
    assert meter.value("mainstay_store_call_seconds_count", method="insert") == 2
    assert meter.value("mainstay_store_call_seconds_sum", method="insert") > 0


async def test_an_error_that_is_not_ours_is_counted_as_unexpected() -> None:
    class Broken(MemoryStore):
        async def stats(self) -> Any:
            raise RuntimeError("not foreseen")

    registry = CollectorRegistry()
    store = metered(Broken(), registry)
    with pytest.raises(RuntimeError, match="not foreseen"):
        await store.stats()

    assert registry.get_sample_value("mainstay_store_errors_total", {"method": "stats", "code": "unexpected"}) == 1


def test_the_whole_port_is_there() -> None:
    inside = MemoryStore()
    store = MeteredStore(inside, CollectorRegistry())

    methods = [(name, found) for face in JobStore.__mro__ for name, found in vars(face).items() if name[0] != "_"]
    assert len(methods) >= 37
    for name, found in methods:
        if inspect.iscoroutinefunction(found):
            assert name in vars(store), name
    with pytest.raises(InvalidInput, match="in memory"):
        store.durability_of("applied")
    assert isinstance(store.wake(["queue:a"]), MemoryWake)
    assert store.next_expiry() is None, "what an adapter has beyond the port"
    assert (store.url, store.clock, store.chain, store.durability) == (
        inside.url,
        inside.clock,
        inside.chain,
        inside.durability,
    )


async def test_two_stores_count_in_one_registry_and_another_observer_hears_all_the_same() -> None:
    registry = CollectorRegistry()
    one, other = Meter(registry=registry), Meter(registry=registry)
    heard: list[str] = []
    one.store.observer = lambda written: heard.extend(after.name for _, after, _ in written)
    await one.control.jobs.submit("a", {})
    await other.control.jobs.submit("b", {})

    assert sum(one.samples("mainstay_transitions_total").values()) == 2
    assert heard == ["a"]


def test_every_metric_has_our_prefix_and_says_what_it_is() -> None:
    meter = Meter()
    declared = {metric.name.removesuffix("_total") for metric in COUNTED}

    assert {family.name for family in meter.registry.collect()} == declared
    for metric in COUNTED:
        assert metric.name.startswith("mainstay_")
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert metric.help


async def test_the_environment_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(await open_store("memory:"), MemoryStore)
    monkeypatch.setenv("MAINSTAY_METRICS", "on")
    assert isinstance(await open_store("memory:"), MeteredStore)
    monkeypatch.setenv("MAINSTAY_METRICS", "off")
    assert isinstance(await open_store("memory:"), MemoryStore)


def test_what_the_environment_says_is_judged() -> None:
    assert [wanted({"MAINSTAY_METRICS": text}) for text in ("on", "NAMES", "0", "")] == ["on", "names", "", ""]
    with pytest.raises(InvalidInput, match="MAINSTAY_METRICS: 'maybe' is not one of on, off, names"):
        wanted({"MAINSTAY_METRICS": "maybe"})


async def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstay.stores.metrics.find_spec", lambda name: None)
    monkeypatch.setenv("MAINSTAY_METRICS", "on")

    with pytest.raises(MissingExtra, match=r"pip install 'mainstay\[prometheus\]'"):
        await open_store("memory:")
