"""When a node stops its work because no manager answers, and which manager may answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mainstay.cluster.isolation import Isolation
from mainstay.cluster.liveness_settings import LivenessSettings
from mainstay.cluster.manager_words import answers_beat
from mainstay.cluster.membership import Membership, decide
from mainstay.cluster.membership_events import (
    BeatHeard,
    HeardElsewhere,
    Leading,
    ManagerStopped,
    StoredManagers,
    Tick,
)
from mainstay.cluster.status import NodeBeat
from mainstay.testing import run_virtual

SETTINGS = LivenessSettings()
BEAT = NodeBeat(node="n1", number=1, incarnation="a")


# the node ----------------------------------------------------------------------------------------------


class Node:
    """A node's count, and when it stopped and went on."""

    def __init__(self) -> None:
        self.events: list[tuple[str, float]] = []
        loop = asyncio.get_running_loop()
        self.isolation = Isolation(
            SETTINGS,
            stop=lambda grace_s, kill_s: self.events.append((f"stop {grace_s:g} {kill_s:g}", loop.time())),
            resume=lambda: self.events.append(("resume", loop.time())),
        )


def played(script: Callable[[Node], Awaitable[None]]) -> list[tuple[str, float]]:
    async def main() -> list[tuple[str, float]]:
        node = Node()
        await script(node)
        return node.events

    return run_virtual(main())


def test_a_node_without_an_answer_stops_at_20_s_once_and_its_engines_are_killed_before_25_s() -> None:
    async def script(node: Node) -> None:
        await asyncio.sleep(100)

    assert played(script) == [("stop 2 3.5", 20.0)]


def test_the_time_counts_from_sending_the_beat_that_was_answered() -> None:
    async def script(node: Node) -> None:
        await asyncio.sleep(10)
        node.isolation.heard(9.0)
        await asyncio.sleep(100)

    assert played(script) == [("stop 2 3.5", 29.0)]


def test_an_earlier_answer_that_comes_late_shortens_nothing() -> None:
    async def script(node: Node) -> None:
        await asyncio.sleep(10)
        node.isolation.heard(9.0)
        node.isolation.heard(3.0)
        await asyncio.sleep(100)

    assert played(script) == [("stop 2 3.5", 29.0)]


def test_work_goes_on_with_the_next_answer() -> None:
    async def script(node: Node) -> None:
        await asyncio.sleep(40)
        node.isolation.heard(39.0)
        assert not node.isolation.isolated
        await asyncio.sleep(10)

    assert played(script) == [("stop 2 3.5", 20.0), ("resume", 40.0)]


def test_an_answer_to_a_beat_from_before_a_pause_does_not_count() -> None:
    async def script(node: Node) -> None:
        await asyncio.sleep(40)
        node.isolation.heard(15.0)
        await asyncio.sleep(10)

    assert played(script) == [("stop 2 3.5", 20.0)]


def test_a_count_that_was_closed_stops_nothing() -> None:
    async def script(node: Node) -> None:
        node.isolation.close()
        await asyncio.sleep(100)

    assert played(script) == []


# the managers ------------------------------------------------------------------------------------------


def manager(*words: HeardElsewhere, leads: bool = False) -> Membership:
    """A manager that has heard a beat and these words, at second 100."""
    state = Membership(manager="m1")
    if leads:
        decide(state, Leading(leads=True, since_s=90), 90)
    for word in words:
        decide(state, word, 100)
    decide(state, BeatHeard(beat=BEAT), 100)
    return state


def word(name: str, *hears: str, leads: bool = False) -> HeardElsewhere:
    return HeardElsewhere(manager=name, heard={}, leads=leads, managers=hears)


def answers(state: Membership, *, now_s: float = 101, led_elsewhere: bool = False, beat: NodeBeat = BEAT) -> bool:
    return answers_beat(state, beat, now_s, led_elsewhere=led_elsewhere)


def test_the_leader_answers() -> None:
    assert answers(manager(leads=True))


@pytest.mark.parametrize(("hears", "expected"), [(("m1",), True), ((), False)])
def test_another_manager_answers_if_the_leader_hears_it(hears: tuple[str, ...], expected: bool) -> None:
    assert answers(manager(word("m2", *hears, leads=True)), led_elsewhere=True) is expected


def test_the_word_of_a_leader_counts_for_three_seconds() -> None:
    state = manager(word("m2", "m1", leads=True))
    assert answers(state, now_s=102.5, led_elsewhere=True)
    assert not answers(state, now_s=103.5, led_elsewhere=True)


def test_a_manager_that_hears_no_leader_does_not_answer_while_the_store_says_that_another_leads() -> None:
    assert not answers(manager(), led_elsewhere=True)
    assert not answers(manager(word("m3", "m1")), led_elsewhere=True)


def test_without_a_leader_managers_that_hear_each_other_answer() -> None:
    """The store is away for all of them: nobody can close a node, and no work has to stop."""
    assert answers(manager(word("m2", "m1"), word("m3", "m1")))
    assert not answers(manager(word("m2", "m1"), word("m3")))


def test_a_silent_manager_may_lead_until_it_has_stopped_or_the_store_has_no_session_of_it() -> None:
    def silent() -> Membership:
        state = manager(word("m2", "m1"))
        decide(state, word("m3", "m1"), 120)
        decide(state, Tick(), 120)
        return state

    assert not answers(silent(), now_s=121)
    stopped, ended, alive = silent(), silent(), silent()
    decide(stopped, ManagerStopped(manager="m2"), 121)
    decide(ended, StoredManagers(names=frozenset({"m1", "m3"})), 121)
    decide(alive, StoredManagers(names=frozenset({"m1", "m2", "m3"})), 121)
    assert answers(stopped, now_s=121)
    assert answers(ended, now_s=121)
    assert not answers(alive, now_s=121)


def test_a_start_of_a_node_that_is_refused_gets_no_answer() -> None:
    state = manager(leads=True)
    other = NodeBeat(node="n1", number=1, incarnation="b", host="elsewhere")
    decide(state, BeatHeard(beat=other), 101)
    assert not answers(state, beat=other)
    assert not answers(state, beat=NodeBeat(node="n9", number=1, incarnation="x"))


def test_a_leader_that_loses_a_manager_counts_the_silence_of_nodes_from_then() -> None:
    """For a moment longer, that manager may have answered a node that the leader does not hear."""
    state = manager(word("m2", "m1"), leads=True)
    decide(state, Tick(), 101)
    for second in range(102, 110):
        decide(state, Tick(), second)
    assert state.managers == {}
    assert state.judged_silence_s(state.nodes["n1"], 130) == 20
