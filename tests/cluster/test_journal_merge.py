"""One journal from those of all managers."""

from __future__ import annotations

from mainstay.cluster.journal_merge import MergedJournal, merge_journals
from mainstay.cluster.status import JournalEntry


def noted(at_s: float, manager: str, event: str = "node_away", about: str = "n1") -> JournalEntry:
    return JournalEntry(at_ms=round(at_s * 1000), event=event, about=about, text=event, manager=manager)


def test_what_several_managers_notice_is_there_once_at_its_first_time() -> None:
    m1, m2, m3 = noted(10, "m1"), noted(11, "m2"), noted(9, "m3")
    assert merge_journals([[m1], [m2], [m3]]) == [m3]


def test_what_happens_again_is_there_again() -> None:
    first, again = noted(10, "m1"), noted(14, "m1")
    assert merge_journals([[first, again], [noted(10.1, "m2"), noted(14.1, "m2")]]) == [first, again]


def test_what_only_one_manager_noticed_is_kept() -> None:
    entries = [noted(10, "m1"), noted(10, "m2", about="n2"), noted(10, "m2", event="node_back"), noted(60, "m2")]
    assert merge_journals([entries[:1], entries[1:]]) == entries


def test_the_leads_of_each_manager_are_kept() -> None:
    entries = [noted(10, "m1", "lead_taken", "leader"), noted(11, "m2", "lead_taken", "leader")]
    assert merge_journals([entries[1:], entries[:1]]) == entries


def test_the_newest_entries_are_kept() -> None:
    entries = [noted(at_s, "m1", about=f"n{at_s}") for at_s in range(5)]
    assert merge_journals([entries], most=2) == entries[3:]
    assert merge_journals([entries], most=0) == []


def test_an_entry_that_is_added_again_is_not_new() -> None:
    merged = MergedJournal()
    entries = [noted(10, "m1"), noted(12, "m2"), noted(40, "m1")]
    assert [merged.add(entry) for entry in entries] == [True, False, True]
    assert [merged.add(entry) for entry in entries] == [False, False, False]
    # a later one of the same manager is not taken for the echo of another manager's
    assert merged.add(noted(20, "m1"))
