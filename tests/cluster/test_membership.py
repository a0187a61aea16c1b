"""Which nodes are alive, by the rules of one manager."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from mainstay.cluster.membership import Membership, decide
from mainstay.cluster.membership_events import (
    Alarm,
    AskResult,
    AskThrough,
    BeatHeard,
    BusAway,
    BusBack,
    CloseNode,
    Forget,
    HeardElsewhere,
    HeardNode,
    JournalNote,
    Leading,
    MarkAway,
    MarkBack,
    MembershipAction,
    MembershipEvent,
    NodeClosed,
    NodeEnded,
    PresenceClosed,
    SessionsClosed,
    SessionStart,
    StoreAway,
    StoreBack,
    StoredSessions,
    Tick,
)
from mainstay.cluster.node_record import active_sessions, heard_list, node_infos
from mainstay.cluster.status import NodeBeat


class Manager:
    """One manager's membership with a clock; the network around it is under the test's control."""

    def __init__(self, *, leads: bool = True, others: tuple[str, ...] = ("m2",), **options: Any) -> None:
        self.state = Membership(manager="m1", **options)
        self.others = list(others)
        self.now_s = 100.0
        self.actions: list[MembershipAction] = []
        self.beating: dict[str, dict[str, Any]] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.asks = True
        """whether a node that is asked is reported as silent"""
        if leads:
            self.do(Leading(leads=True, since_s=self.now_s))

    def do(self, event: MembershipEvent) -> list[MembershipAction]:
        actions = decide(self.state, event, self.now_s)
        self.actions += actions
        for action in actions:
            if isinstance(action, CloseNode):
                self.do(SessionsClosed(sessions=action.sessions))
            if isinstance(action, AskThrough) and self.asks:
                for manager in action.managers:
                    self.do(AskResult(node=action.node, manager=manager, answered=False))
        return actions

    def beat(self, node: str, incarnation: str = "a", **fields: Any) -> list[MembershipAction]:
        number = fields.pop("number", None)
        if number is None:
            number = self.numbers[node, incarnation] = self.numbers.get((node, incarnation), 0) + 1
        fields.setdefault("sessions", (f"s-{node}-{incarnation}",))
        return self.do(BeatHeard(beat=NodeBeat(node=node, incarnation=incarnation, number=number, **fields)))

    def passes(self, duration_s: float, *beating: str, **fields: Any) -> list[MembershipAction]:
        """Let time pass; the named nodes beat, and the other managers are heard."""
        found: list[MembershipAction] = []
        before = len(self.actions)
        for second in range(round(duration_s)):
            self.now_s += 1
            for manager in self.others:
                self.do(HeardElsewhere(manager=manager, heard={}))
            if second % 2 == 0:
                for node in beating:
                    self.beat(node, **fields)
            self.do(Tick())
        found += self.actions[before:]
        return found

    def of(self, node: str) -> str:
        return self.state.nodes[node].state


def closes(actions: list[MembershipAction]) -> list[tuple[str, str]]:
    return [(action.node, action.cause) for action in actions if isinstance(action, CloseNode)]


def notes(actions: list[MembershipAction]) -> list[tuple[str, str]]:
    return [(action.event, action.about) for action in actions if isinstance(action, JournalNote)]


def alarms(actions: list[MembershipAction]) -> list[tuple[str, bool]]:
    return [(action.key, action.on) for action in actions if isinstance(action, Alarm)]


@pytest.fixture
def manager() -> Iterator[Manager]:
    """A leader that hears five nodes and a second manager."""
    made = Manager()
    made.passes(4, "n1", "n2", "n3", "n4", "n5")
    made.actions.clear()
    yield made
    # what holds after every test
    assert made.state.nodes.keys() >= {action.node for action in made.actions if isinstance(action, MarkAway)} - {
        action.node for action in made.actions if isinstance(action, Forget)
    }


REST = ("n2", "n3", "n4", "n5")


# silence ---------------------------------------------------------------------------------------------


def test_a_node_joins_with_its_first_beat() -> None:
    manager = Manager()
    assert notes(manager.beat("n1", host="box", cores=4)) == [("node_joined", "n1")]
    assert manager.of("n1") == "active"
    assert active_sessions(manager.state) == {"s-n1-a"}


def test_a_node_is_away_after_10_s_and_nothing_is_taken(manager: Manager) -> None:
    assert manager.passes(8, *REST) == []
    actions = manager.passes(2, *REST)
    assert [action for action in actions if isinstance(action, MarkAway)] == [
        MarkAway(node="n1", reason="no manager has heard it for 10 s")
    ]
    assert closes(manager.passes(12, *REST)) == []
    assert manager.of("n1") == "away"
    assert "s-n1-a" not in active_sessions(manager.state)


def test_a_node_is_closed_after_25_s_when_two_managers_got_no_answer(manager: Manager) -> None:
    actions = manager.passes(30, *REST)
    assert closes(actions) == [("n1", "silence")]
    assert [action.managers for action in actions if isinstance(action, AskThrough)] == [("m1", "m2")]
    assert manager.of("n1") == "closed"
    closed_s = manager.state.nodes["n1"].since_s - manager.state.nodes["n1"].heard_s
    assert 25 <= closed_s < 26.5


def test_a_node_that_is_heard_again_is_back_with_its_sessions(manager: Manager) -> None:
    manager.passes(14, *REST)
    actions = manager.beat("n1")
    assert MarkBack(node="n1") in actions
    assert manager.of("n1") == "active"
    assert closes(manager.passes(60, "n1", *REST)) == []


def test_only_the_leader_closes() -> None:
    manager = Manager(leads=False)
    manager.passes(4, "n1", "n2", "n3")
    actions = manager.passes(300, "n2", "n3")
    assert manager.of("n1") == "away"
    assert closes(actions) == []
    assert not [action for action in actions if isinstance(action, AskThrough)]


def test_a_new_leader_counts_from_its_takeover() -> None:
    manager = Manager(leads=False)
    manager.passes(4, "n1", "n2", "n3")
    manager.passes(300, "n2", "n3")
    manager.do(Leading(leads=True, since_s=manager.now_s))
    assert closes(manager.passes(24, "n2", "n3")) == []
    assert closes(manager.passes(3, "n2", "n3")) == [("n1", "silence")]


def test_a_leader_that_lost_the_lead_stops_judging(manager: Manager) -> None:
    manager.passes(22, *REST)
    assert notes(manager.do(Leading(leads=False))) == [("lead_lost", "placement")]
    assert closes(manager.passes(60, *REST)) == []


def test_a_manager_alone_asks_by_itself() -> None:
    manager = Manager(others=())
    manager.passes(4, "n1", "n2", "n3")
    actions = manager.passes(30, "n2", "n3")
    assert [action.managers for action in actions if isinstance(action, AskThrough)] == [("m1",)]
    assert closes(actions) == [("n1", "silence")]


def test_a_lone_node_is_closed_too() -> None:
    manager = Manager(others=())
    manager.passes(4, "n1")
    assert closes(manager.passes(30)) == [("n1", "silence")]


# each path cut alone ---------------------------------------------------------------------------------


def test_a_node_that_only_the_second_manager_hears_stays_active(manager: Manager) -> None:
    for number in range(10, 100):
        manager.passes(1, *REST)
        heard = HeardNode(incarnation="a", number=number, age_s=1.5)
        manager.do(HeardElsewhere(manager="m2", heard={"n1": heard}))
        assert manager.of("n1") == "active"
    assert "n1" not in {action.node for action in manager.actions if isinstance(action, MarkAway)}


def test_a_node_that_answers_the_leader_keeps_its_work_and_gets_no_new_work(manager: Manager) -> None:
    manager.asks = False
    for _ in range(200):
        for action in manager.passes(1, *REST):
            if isinstance(action, AskThrough):
                manager.do(AskResult(node="n1", manager="m1", answered=True, incarnation="a"))
                manager.do(AskResult(node="n1", manager="m2", answered=False))
    assert manager.of("n1") == "away"
    assert closes(manager.actions) == []


def test_a_node_that_answers_the_second_manager_keeps_its_work(manager: Manager) -> None:
    manager.asks = False
    for _ in range(200):
        for action in manager.passes(1, *REST):
            if isinstance(action, AskThrough):
                manager.do(AskResult(node="n1", manager="m1", answered=False))
                manager.do(AskResult(node="n1", manager="m2", answered=True))
    assert closes(manager.actions) == []


def test_without_the_word_of_the_second_manager_the_leader_asks_it_again(manager: Manager) -> None:
    manager.asks = False
    actions: list[MembershipAction] = []
    for _ in range(40):
        found = manager.passes(1, *REST)
        actions += found
        if any(isinstance(action, AskThrough) for action in found):
            manager.do(AskResult(node="n1", manager="m1", answered=False))
    asked = [action for action in actions if isinstance(action, AskThrough)]
    assert len(asked) == 1 + manager.state.settings.ask_tries
    assert closes(actions) == [("n1", "silence")]


def test_the_answer_of_another_incarnation_does_not_count(manager: Manager) -> None:
    manager.asks = False
    for _ in range(30):
        for action in manager.passes(1, *REST):
            if isinstance(action, AskThrough):
                manager.do(AskResult(node="n1", manager="m1", answered=False))
                manager.do(AskResult(node="n1", manager="m2", answered=False))
                manager.do(AskResult(node="n1", manager="m2", answered=True, incarnation="other"))
    assert closes(manager.actions) == [("n1", "silence")]


def test_two_managers_do_not_keep_a_dead_node_alive_between_them(manager: Manager) -> None:
    manager.do(HeardElsewhere(manager="m2", heard={"n1": HeardNode(incarnation="a", number=9, age_s=0)}))
    assert heard_list(manager.state, manager.now_s + 3)["n1"].age_s == manager.now_s + 3 - 103
    assert "n1" not in heard_list(manager.state, manager.now_s + 60)


def test_the_word_of_a_manager_about_an_old_beat_brings_nothing_back(manager: Manager) -> None:
    for _ in range(30):
        manager.passes(1, *REST)
        manager.do(HeardElsewhere(manager="m2", heard={"n1": HeardNode(incarnation="a", number=1, age_s=0)}))
        manager.do(HeardElsewhere(manager="m2", heard={"n1": HeardNode(incarnation="z", number=99, age_s=0)}))
    assert closes(manager.actions) == [("n1", "silence")]


def test_a_node_that_only_others_hear_is_reported_and_never_closed() -> None:
    manager = Manager()
    for _ in range(70):
        manager.passes(1)
        manager.do(HeardElsewhere(manager="m2", heard={"n9": HeardNode(incarnation="a", number=1, age_s=0)}))
    assert alarms(manager.actions) == [("hearsay:n9", True)]
    assert alarms(manager.passes(185)) == [("hearsay:n9", False)]
    assert closes(manager.actions) == []
    assert manager.state.hearsay == {}


# a manager that is in no position to judge -------------------------------------------------------------


def test_a_manager_without_its_store_judges_no_node(manager: Manager) -> None:
    assert alarms(manager.do(StoreAway())) == [("store", True)]
    assert closes(manager.passes(300, *REST)) == []
    assert alarms(manager.do(StoreBack())) == [("store", False)]
    assert closes(manager.passes(24, *REST)) == []
    assert closes(manager.passes(3, *REST)) == [("n1", "silence")]


def test_a_manager_without_its_bus_suspects_no_node(manager: Manager) -> None:
    manager.do(BusAway())
    actions = manager.passes(300)
    assert closes(actions) == []
    assert not [action for action in actions if isinstance(action, MarkAway)]
    manager.do(BusBack())
    assert not [action for action in manager.passes(9) if isinstance(action, MarkAway)]


def test_the_journal_says_when_the_store_and_the_bus_were_away_and_for_how_long(manager: Manager) -> None:
    assert notes(manager.do(StoreAway())) == [("store_away", "m1")]
    assert notes(manager.do(StoreAway())) == []
    manager.passes(90, *REST)
    [back] = [action for action in manager.do(StoreBack()) if isinstance(action, JournalNote)]
    assert (back.event, back.about, back.seconds) == ("store_back", "m1", 90.0)
    assert back.text == "m1 reaches its store again, after 90 s"

    assert notes(manager.do(BusAway())) == [("bus_away", "m1")]
    assert notes(manager.do(BusBack())) == [("bus_back", "m1")]


def test_the_journal_says_when_a_node_gets_work_after_all_others_and_when_as_before(manager: Manager) -> None:
    noted = []
    for cpu in (0.9, 0.9, 0.9, 0.9, 0.75, 0.75, 0.75):
        noted += notes(manager.beat("n1", cpu=cpu))

    assert noted == [("node_level", "n1"), ("node_level", "n1")]


def test_a_manager_that_stood_still_gives_the_nodes_time(manager: Manager) -> None:
    manager.now_s += 600
    actions = manager.do(Tick())
    assert not [action for action in actions if isinstance(action, MarkAway)]
    assert [manager.of(node) for node in ("n1", "n2")] == ["active", "active"]
    assert closes(manager.passes(30, "n1", *REST)) == []


# mass silence ------------------------------------------------------------------------------------------


def test_when_more_than_half_become_silent_no_node_is_judged_for_60_s(manager: Manager) -> None:
    actions = manager.passes(60, "n4", "n5")
    assert ("mass_silence", True) in alarms(actions)
    assert closes(actions) == []
    assert [manager.of(node) for node in ("n1", "n2", "n3")] == ["away"] * 3
    actions = manager.passes(30, "n4", "n5")
    assert ("mass_silence", False) in alarms(actions)
    assert ("mass_silence_over", "nodes") in notes(actions)
    assert sorted(closes(actions)) == [("n1", "silence"), ("n2", "silence"), ("n3", "silence")]


def test_a_mass_silence_that_ends_costs_nothing(manager: Manager) -> None:
    manager.passes(30, "n4", "n5")
    manager.passes(120, "n1", *REST)
    assert closes(manager.actions) == []
    assert alarms(manager.actions) == [("mass_silence", True), ("mass_silence", False)]


def test_a_proven_death_in_a_mass_silence_is_closed(manager: Manager) -> None:
    manager.passes(20, "n4", "n5")
    assert manager.state.hold_until_s is not None
    actions = manager.do(NodeEnded(node="n2", incarnation="a", how="killed by signal 9"))
    assert closes(actions) == [("n2", "proven")]


@pytest.mark.parametrize("silent", [("n1",), ("n1", "n2")])
def test_half_of_the_nodes_or_two_are_not_a_mass(silent: tuple[str, ...]) -> None:
    manager = Manager()
    names = ("n1", "n2", "n3", "n4") if len(silent) == 2 else ("n1",)
    manager.passes(4, *names)
    actions = manager.passes(40, *(name for name in names if name not in silent))
    assert sorted(closes(actions)) == [(name, "silence") for name in silent]
    assert alarms(actions) == []


def test_nodes_that_become_silent_one_by_one_are_not_a_mass(manager: Manager) -> None:
    left = ["n1", *REST]
    for _ in range(4):
        left.pop(0)
        manager.passes(12, *left)
    assert alarms(manager.actions) == []


# proof -------------------------------------------------------------------------------------------------


def test_a_proven_death_is_closed_at_once(manager: Manager) -> None:
    actions = manager.do(NodeEnded(node="n1", incarnation="a", how="exit code 1"))
    assert closes(actions) == [("n1", "proven")]
    assert notes(actions) == [("node_closed", "n1")]
    assert manager.do(NodeEnded(node="n1", incarnation="a", how="exit code 1")) == []


def test_the_proof_reaches_the_next_leader() -> None:
    manager = Manager(leads=False)
    manager.passes(4, "n1", "n2", "n3")
    assert closes(manager.do(NodeEnded(node="n1", incarnation="a", how="exit code 1"))) == []
    assert closes(manager.do(Leading(leads=True, since_s=manager.now_s))) == [("n1", "proven")]


def test_the_end_of_an_earlier_start_does_not_close_the_node(manager: Manager) -> None:
    manager.beat("n1", "b")
    manager.actions.clear()
    assert closes(manager.do(NodeEnded(node="n1", incarnation="a", how="exit code 1"))) == []
    assert manager.of("n1") == "active"


def test_the_end_of_a_node_that_was_never_heard_closes_the_sessions_its_parent_names(manager: Manager) -> None:
    ended = NodeEnded(node="n9", incarnation="x", how="exit code 1", sessions=("s9",))
    assert manager.do(ended) == [CloseNode(node="n9", sessions=("s9",), cause="proven", reason=manager_reason(ended))]


def manager_reason(ended: NodeEnded) -> str:
    return f"its parent process saw it end: {ended.how}"


def test_a_late_beat_of_a_dead_node_does_not_bring_it_back(manager: Manager) -> None:
    manager.do(NodeEnded(node="n1", incarnation="a", how="exit code 1"))
    manager.beat("n1")
    assert manager.of("n1") == "closed"


def test_a_closed_connection_means_away_until_the_next_beat(manager: Manager) -> None:
    actions = manager.do(PresenceClosed(node="n1"))
    assert MarkAway(node="n1", reason="its connection to the bus was closed") in actions
    heard = HeardNode(incarnation="a", number=50, age_s=1)
    manager.do(HeardElsewhere(manager="m2", heard={"n1": heard}))
    assert manager.of("n1") == "away"
    assert MarkBack(node="n1") in manager.beat("n1")
    assert manager.do(PresenceClosed(node="unknown")) == []


def test_a_closed_connection_alone_closes_no_node_before_25_s(manager: Manager) -> None:
    manager.do(PresenceClosed(node="n1"))
    assert closes(manager.passes(21, *REST)) == []
    assert closes(manager.passes(9, *REST)) == [("n1", "silence")]


# incarnations --------------------------------------------------------------------------------------------


def test_an_older_beat_is_ignored(manager: Manager) -> None:
    manager.beat("n1", cores=8)
    assert manager.beat("n1", number=1, cores=2) == []
    assert manager.state.nodes["n1"].beat.cores == 8


def test_a_restart_replaces_the_earlier_start(manager: Manager) -> None:
    actions = manager.beat("n1", "b")
    assert [action for action in actions if isinstance(action, CloseNode)] == [
        CloseNode(node="n1", sessions=("s-n1-a",), reason="n1 was started again", cause="replaced")
    ]
    assert notes(actions) == [("node_closed", "n1"), ("node_joined", "n1")]
    assert "s-n1-b" in active_sessions(manager.state)
    assert "s-n1-a" not in active_sessions(manager.state)


def test_a_late_beat_of_the_earlier_start_is_ignored(manager: Manager) -> None:
    manager.beat("n1", "b")
    manager.now_s += 1
    assert manager.beat("n1", "a") == []
    assert "s-n1-b" in active_sessions(manager.state)


def test_the_replaced_sessions_are_closed_by_the_next_leader() -> None:
    manager = Manager(leads=False)
    manager.beat("n1", "a")
    assert closes(manager.beat("n1", "b")) == []
    assert closes(manager.do(Leading(leads=True, since_s=manager.now_s))) == [("n1", "replaced")]


def test_a_session_that_another_leader_has_closed_is_not_closed_again() -> None:
    manager = Manager(leads=False)
    manager.beat("n1", "a")
    manager.beat("n1", "b")
    manager.do(NodeClosed(manager="m2", node="n1", sessions=("s-n1-a",), reason="restarted"))
    assert closes(manager.do(Leading(leads=True, since_s=manager.now_s))) == []


def test_a_follower_learns_that_a_node_was_closed() -> None:
    manager = Manager(leads=False)
    manager.beat("n1", "a")
    actions = manager.do(NodeClosed(manager="m2", node="n1", sessions=("s-n1-a",), reason="silent"))
    assert notes(actions) == [("node_closed", "n1")]
    assert manager.of("n1") == "closed"


def test_a_second_host_with_the_same_name_is_refused_while_the_first_beats() -> None:
    manager = Manager()
    seen: list[MembershipAction] = []
    for _ in range(60):
        manager.now_s += 1
        seen += manager.beat("n1", "a", host="box1")
        manager.now_s += 1
        seen += manager.beat("n1", "b", host="box2")
        seen += manager.do(Tick())
    assert closes(seen) == []
    assert alarms(seen) == [("duplicate:n1", True)]
    assert notes(seen) == [("node_joined", "n1"), ("node_refused", "n1")]
    assert active_sessions(manager.state) == {"s-n1-a"}
    assert alarms(manager.passes(12, "n1", host="box1")) == [("duplicate:n1", False)]


def test_a_node_that_moved_to_another_host_replaces_the_silent_one() -> None:
    manager = Manager()
    manager.beat("n1", "a", host="box1")
    manager.now_s += 1
    for _ in range(4):
        manager.beat("n1", "b", host="box2")
        manager.passes(2)
    assert closes(manager.actions) == [("n1", "replaced")]
    assert active_sessions(manager.state) == {"s-n1-b"}
    assert alarms(manager.actions) == []


def test_a_node_on_another_host_follows_at_once_if_the_connection_of_the_first_was_closed() -> None:
    manager = Manager()
    manager.beat("n1", "a", host="box1")
    manager.do(PresenceClosed(node="n1"))
    assert closes(manager.beat("n1", "b", host="box2")) == [("n1", "replaced")]


def test_two_programs_on_one_host_with_the_same_name_do_not_alternate() -> None:
    manager = Manager()
    for _ in range(60):
        manager.now_s += 1
        manager.beat("n1", "a", host="box")
        manager.now_s += 1
        manager.beat("n1", "b", host="box")
        manager.do(Tick())
    assert closes(manager.actions) == [("n1", "replaced")]
    assert alarms(manager.actions) == [("duplicate:n1", True)]


def test_a_node_of_another_version_is_refused() -> None:
    manager = Manager(version="1.4.0")
    assert notes(manager.beat("n1", version="1.2.0")) == [("node_refused", "n1")]
    assert alarms(manager.beat("n1", version="1.2.0")) == [("version:n1", True)]
    assert manager.state.nodes == {}
    assert alarms(manager.passes(11)) == [("version:n1", False)]
    manager.beat("n1", "b", version="1.3.0")
    assert manager.of("n1") == "active"


# rejoin, drain, forgetting --------------------------------------------------------------------------------


def test_a_node_that_was_closed_comes_back_with_a_new_session_only(manager: Manager) -> None:
    manager.passes(30, *REST)
    manager.beat("n1")
    assert manager.of("n1") == "closed"
    actions = manager.beat("n1", sessions=("s-n1-a", "new"))
    assert MarkBack(node="n1") in actions
    assert {"new"} == {session for session in active_sessions(manager.state) if session in ("new", "s-n1-a")}


def test_a_node_that_is_heard_before_the_store_has_closed_it_is_spared() -> None:
    state = Membership(manager="m1")
    beat = NodeBeat(node="n1", number=1, incarnation="a", sessions=("s1",))
    decide(state, Leading(leads=True, since_s=0.0), 0)
    decide(state, BeatHeard(beat=beat), 0)
    actions: list[MembershipAction] = []
    for second in range(1, 30):
        for action in decide(state, Tick(), second):
            actions.append(action)
            if isinstance(action, AskThrough):
                decide(state, AskResult(node="n1", manager="m1", answered=False), second)
    assert closes(actions)[0] == ("n1", "silence")
    decide(state, BeatHeard(beat=NodeBeat(node="n1", number=2, incarnation="a", sessions=("s1",))), 30)
    assert active_sessions(state) == {"s1"}
    assert closes(decide(state, Tick(), 35)) == []
    # but the store may have done it in the meantime
    decide(state, SessionsClosed(sessions=("s1",)), 36)
    assert state.nodes["n1"].state == "closed"


def test_a_close_is_requested_until_the_store_confirms_it() -> None:
    state = Membership(manager="m1")
    decide(state, Leading(leads=True, since_s=0.0), 0)
    ended = NodeEnded(node="n1", incarnation="a", how="exit code 1", sessions=("s1",))
    assert closes(decide(state, ended, 1)) == [("n1", "proven")]
    assert closes(decide(state, Tick(), 2)) == []
    assert closes(decide(state, Tick(), 4)) == [("n1", "proven")]
    decide(state, SessionsClosed(sessions=("s1",)), 5)
    assert closes(decide(state, Tick(), 60)) == []


def test_a_closed_node_is_forgotten_after_15_minutes(manager: Manager) -> None:
    manager.do(NodeEnded(node="n1", incarnation="a", how="exit code 0"))
    assert not [action for action in manager.passes(890, *REST) if isinstance(action, Forget)]
    assert [action for action in manager.passes(12, *REST) if isinstance(action, Forget)] == [Forget(node="n1")]
    assert "n1" not in manager.state.nodes


def test_a_draining_node_gets_no_work_and_is_not_suspected(manager: Manager) -> None:
    assert notes(manager.beat("n1", draining=True)) == [("node_draining", "n1")]
    assert "s-n1-a" not in active_sessions(manager.state)
    assert manager.do(PresenceClosed(node="n1")) == []
    assert manager.of("n1") == "draining"
    actions = manager.do(NodeEnded(node="n1", incarnation="a", how="exit code 0"))
    assert closes(actions) == [("n1", "proven")]


def test_a_busy_node_is_never_dead_while_it_beats(manager: Manager) -> None:
    manager.passes(600, "n1", *REST, cpu=1.0, memory=0.99)
    assert {manager.of(node) for node in ("n1", *REST)} == {"active"}
    assert manager.state.nodes["n1"].overload.level == "overloaded"
    assert [notes([action]) for action in manager.actions] == [[("node_level", node)] for node in ("n1", *REST)]


# sessions that are only in the store ------------------------------------------------------------------------


def test_the_session_of_a_node_that_died_without_a_manager_is_closed_25_s_after_the_takeover() -> None:
    manager = Manager()
    stored = StoredSessions(sessions={"n1": ("s1", "s2")})
    manager.do(stored)
    assert manager.of("n1") == "away"
    assert closes(manager.passes(24)) == []
    manager.do(stored)
    actions = manager.passes(3)
    assert [action.sessions for action in actions if isinstance(action, CloseNode)] == [("s1", "s2")]


def test_a_stored_session_is_adopted_by_the_beat_that_lists_it() -> None:
    manager = Manager()
    stored = StoredSessions(sessions={"n1": ("s1", "s2")})
    manager.do(stored)
    actions = manager.beat("n1", sessions=("s1",))
    assert notes(actions) == [("node_joined", "n1"), ("node_back", "n1")]
    for _ in range(10):
        manager.do(stored)
        manager.passes(4, "n1", sessions=("s1",))
    closed = [action for action in manager.actions if isinstance(action, CloseNode)]
    assert [(action.sessions, action.cause) for action in closed] == [(("s2",), "replaced")]
    assert active_sessions(manager.state) == {"s1"}


def test_the_sessions_of_an_earlier_start_are_closed_as_soon_as_the_node_is_heard_again() -> None:
    manager = Manager()
    starts = {"s1": started(10, at_ms=1_000), "s2": started(20, at_ms=9_000)}
    manager.do(StoredSessions(sessions={"n1": ("s1", "s2")}, starts=starts))
    assert closes(manager.passes(5)) == []

    manager.beat("n1", sessions=("s2",), host="h1", pid=20)

    assert closes(manager.passes(2, "n1", sessions=("s2",), host="h1", pid=20)) == [("n1", "replaced")]
    assert active_sessions(manager.state) == {"s2"}


@pytest.mark.parametrize(
    ("host", "pid", "at_ms"),
    # the start after the one that beats; another host; the process that beats
    [("h1", 30, 20_000), ("h2", 10, 1_000), ("h1", 20, 1_000)],
)
def test_a_session_that_may_be_in_use_is_not_closed_before_its_time(host: str, pid: int, at_ms: int) -> None:
    manager = Manager()
    starts = {"s1": started(pid, at_ms=at_ms, host=host), "s2": started(20, at_ms=9_000)}
    beat: dict[str, Any] = {"sessions": ("s2",), "host": "h1", "pid": 20}
    manager.beat("n1", **beat)
    manager.do(StoredSessions(sessions={"n1": ("s1", "s2")}, starts=starts))

    assert closes(manager.passes(24, "n1", **beat)) == []
    assert closes(manager.passes(3, "n1", **beat)) == [("n1", "replaced")]


def started(pid: int, *, at_ms: int, host: str = "h1") -> SessionStart:
    return SessionStart(host=host, pid=pid, at_ms=at_ms)


def test_a_session_is_not_closed_before_its_node_could_list_it() -> None:
    manager = Manager()
    manager.beat("n1", sessions=("s1",))
    manager.do(StoredSessions(sessions={"n1": ("s1", "s2")}))
    manager.passes(4, "n1", sessions=("s1", "s2"))
    assert closes(manager.passes(60, "n1", sessions=("s1", "s2"))) == []


def test_a_session_that_the_leader_could_not_hear_of_is_kept_while_others_hear_its_node() -> None:
    manager = Manager()
    manager.beat("n1", sessions=())
    manager.do(StoredSessions(sessions={"n1": ("s1",)}))
    for number in range(60):
        manager.passes(1)
        manager.do(HeardElsewhere(manager="m2", heard={"n1": HeardNode(incarnation="a", number=number + 2, age_s=0.0)}))
    assert closes(manager.actions) == []
    assert manager.of("n1") == "active"

    assert closes(manager.passes(30, "n1", sessions=())) == [("n1", "replaced")]


def test_a_stored_session_of_a_node_that_others_hear_is_kept() -> None:
    manager = Manager()
    manager.do(StoredSessions(sessions={"n1": ("s1",)}))
    for _ in range(50):
        manager.passes(1)
        manager.do(HeardElsewhere(manager="m2", heard={"n1": HeardNode(incarnation="a", number=1, age_s=0)}))
    assert closes(manager.actions) == []


# for people --------------------------------------------------------------------------------------------------


def test_nodes_are_listed_with_the_times_of_the_wall_clock(manager: Manager) -> None:
    manager.passes(12, *REST)
    first, second = node_infos(manager.state, now_s=manager.now_s, now_ms=1_000_000)[:2]
    assert (first.name, first.state, first.heard_ms) == ("n1", "away", 1_000_000 - 13_000)
    assert (second.name, second.state) == ("n2", "active")
    assert "no manager has heard it" in first.reason


def test_managers_join_and_leave_the_journal() -> None:
    manager = Manager(others=())
    manager.do(HeardElsewhere(manager="m2", heard={}))
    manager.do(HeardElsewhere(manager="m1", heard={}))
    manager.passes(6)
    found = [note for note in notes(manager.actions) if note[0].startswith("manager")]
    assert found == [("manager_joined", "m2"), ("manager_left", "m2")]


def test_the_states_of_one_node_follow_each_other(manager: Manager) -> None:
    manager.passes(30, *REST)
    manager.beat("n1", sessions=("new",))
    manager.beat("n1", sessions=("new",), draining=True)
    manager.do(NodeEnded(node="n1", incarnation="a", how="exit code 0"))
    events = [event for event, about in notes(manager.actions) if about == "n1"]
    assert events == ["node_away", "node_closed", "node_back", "node_draining", "node_closed"]
    assert all(left != right for left, right in pairwise(events))


def test_the_journal_says_why_a_node_is_away_or_closed_and_for_how_long_it_was_silent(manager: Manager) -> None:
    manager.do(PresenceClosed(node="n1"))
    manager.passes(30, *REST)
    manager.do(NodeEnded(node="n2", incarnation="a", how="it exited with 1"))
    reasons = {
        (note.event, note.about): (note.cause, note.seconds)
        for note in manager.actions
        if isinstance(note, JournalNote) and note.event in ("node_away", "node_closed")
    }
    assert reasons.keys() == {("node_away", "n1"), ("node_closed", "n1"), ("node_closed", "n2")}
    assert reasons["node_away", "n1"][0] == "disconnected"
    cause, seconds = reasons["node_closed", "n1"]
    assert cause == "silence"
    assert seconds is not None
    assert 25 <= seconds <= 27
    assert reasons["node_closed", "n2"] == ("proven", 1.0)
