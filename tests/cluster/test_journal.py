"""The journal of a cluster."""

from __future__ import annotations

from pathlib import Path

from mainstay.cluster.journal import ClusterJournal
from mainstay.testing import VirtualClock

DAY_S = 86_400


def journal_in(folder: Path, clock: VirtualClock, **options: int) -> ClusterJournal:
    return ClusterJournal(folder / "journal", clock=clock, **options)


def write(journal: ClusterJournal, *texts: str) -> None:
    for text in texts:
        journal.append("node_away", "n1", text, manager="m1")


def texts(journal: ClusterJournal, **options: int) -> list[str]:
    return [entry.text for entry in journal.entries(**options)]


def test_entries_are_read_in_their_order(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, VirtualClock())
    assert journal.entries() == []
    write(journal, "a", "b", "c")
    assert texts(journal) == ["a", "b", "c"]
    assert texts(journal, limit=2) == ["b", "c"]
    journal.close()


def test_a_time_range_is_read(tmp_path: Path) -> None:
    clock = VirtualClock()
    journal = journal_in(tmp_path, clock)
    moments = []
    for number in range(5):
        moments.append(clock.now_ms())
        write(journal, str(number))
        clock.advance(DAY_S)
    assert texts(journal, from_ms=moments[1], until_ms=moments[3]) == ["1", "2"]
    assert texts(journal, from_ms=moments[4]) == ["4"]
    assert len(list((tmp_path / "journal").iterdir())) == 5
    journal.close()


def test_a_torn_last_line_is_skipped_and_the_next_entry_is_whole(tmp_path: Path) -> None:
    clock = VirtualClock()
    journal = journal_in(tmp_path, clock)
    write(journal, "a", "b")
    journal.close()
    [path] = (tmp_path / "journal").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    again = journal_in(tmp_path, clock)
    assert texts(again) == ["a"]
    write(again, "c")
    assert texts(again) == ["a", "c"]
    again.close()


def test_entries_are_kept_for_30_days(tmp_path: Path) -> None:
    clock = VirtualClock()
    journal = journal_in(tmp_path, clock)
    for number in range(40):
        write(journal, str(number))
        clock.advance(DAY_S)
    found = texts(journal)
    assert found[-1] == "39"
    assert 30 <= len(found) <= 32
    journal.close()


def test_the_folder_is_bounded(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, VirtualClock(), file_bytes=1000, most_bytes=5000)
    write(journal, *(str(number) for number in range(1000)))
    size = sum(path.stat().st_size for path in (tmp_path / "journal").iterdir())
    assert size <= 6200
    assert texts(journal)[-1] == "999"
    journal.close()


def test_a_long_text_is_cut(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, VirtualClock())
    write(journal, "x" * 100_000)
    assert len(texts(journal)[0]) == 2000
    journal.close()


def test_a_clock_that_was_set_back_loses_nothing(tmp_path: Path) -> None:
    clock = VirtualClock()
    clock.advance(3600)
    journal = journal_in(tmp_path, clock)
    write(journal, "a")
    journal.close()
    back = VirtualClock()
    later = journal_in(tmp_path, back)
    write(later, "b")
    assert texts(later) == ["a", "b"]
    later.close()


def test_without_a_folder_the_newest_entries_are_kept_in_memory() -> None:
    journal = ClusterJournal(None, clock=VirtualClock())
    write(journal, *(str(number) for number in range(1500)))
    assert texts(journal, limit=2) == ["1498", "1499"]
    assert len(journal.entries()) == 1000
    journal.close()


def test_more_entries_than_are_in_memory_are_read_from_the_folder(tmp_path: Path) -> None:
    clock = VirtualClock()
    journal = journal_in(tmp_path, clock, file_bytes=10_000)
    began_ms = clock.now_ms()
    for number in range(1500):
        write(journal, str(number))
        clock.advance(1)
    assert len(journal.entries()) == 1500
    assert texts(journal, from_ms=began_ms + 3000, until_ms=began_ms + 5000) == ["3", "4"]
    assert texts(journal, from_ms=began_ms + 1_499_000) == ["1499"]
    journal.close()
    assert texts(journal_in(tmp_path, clock), limit=1) == ["1499"]


def test_the_cause_of_a_closing_and_its_seconds_are_kept(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, VirtualClock())
    journal.append("node_closed", "n1", "n1 is closed", manager="m1", cause="silence", seconds=25.3)
    journal.close()
    [entry] = journal_in(tmp_path, VirtualClock()).entries()
    assert (entry.cause, entry.seconds) == ("silence", 25.3)


def test_a_clock_that_was_set_back_by_days_makes_no_file_for_each_entry(tmp_path: Path) -> None:
    clock = VirtualClock()
    clock.advance(40 * DAY_S)
    ahead = journal_in(tmp_path, clock)
    write(ahead, "a")
    ahead.close()
    journal = journal_in(tmp_path, VirtualClock())
    write(journal, *"bcdefgh")
    assert texts(journal) == list("abcdefgh")
    assert len(list((tmp_path / "journal").iterdir())) <= 2
    journal.close()


def test_the_newest_entries_are_read_without_the_oldest_files(tmp_path: Path) -> None:
    clock = VirtualClock()
    journal = journal_in(tmp_path, clock)
    for number in range(5):
        write(journal, f"{number}a", f"{number}b")
        clock.advance(DAY_S)
    for path in sorted((tmp_path / "journal").iterdir())[:3]:
        path.unlink()
        path.mkdir()  # reading it would fail
    assert texts(journal, limit=3) == ["3b", "4a", "4b"]
    journal.close()
