"""The kept output of one attempt: the newest bytes, with every loss counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.errors import InvalidInput
from mainstay.worker import TAIL_BYTES, output_path, prune_output, read_output
from mainstay.worker.output_file import AttemptOutput

ID = "018bcfe5-6800-7000-8000-0123456789ab"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return output_path(tmp_path, ID, 1)


def kept(path: Path, **more: int) -> bytes:
    found = read_output(path, **more)
    assert found is not None
    assert found.end - found.start == len(found.data)
    return found.data


def test_an_attempt_that_prints_nothing_leaves_no_file(path: Path) -> None:
    AttemptOutput(path).close()
    assert read_output(path) is None
    assert not path.exists()


def test_a_line_is_kept_when_it_ends_and_the_rest_at_the_end(path: Path) -> None:
    file = AttemptOutput(path)
    file.write("one")
    file.write("\n")
    assert kept(path) == b"one\n"
    file.write("two")
    assert kept(path) == b"one\n"
    file.flush()
    assert kept(path) == b"one\ntwo"
    file.write(" three")
    file.close()
    assert kept(path) == b"one\ntwo three"


def test_a_reader_goes_on_where_it_was(path: Path) -> None:
    file = AttemptOutput(path)
    file.write("one\ntwo\n")
    assert kept(path, after=4) == b"two\n"
    assert kept(path, after=8) == b""
    assert kept(path, after=1000) == b""


def test_only_the_newest_output_is_kept_and_its_positions_show_what_is_gone(path: Path) -> None:
    clock = Clock()
    file = AttemptOutput(path, now_s=clock)
    lines = [f"line {number:06d}\n".encode() for number in range(40_000)]
    for number, line in enumerate(lines):
        clock.now = number / 1000
        file.write_bytes(line)
    file.close()

    found = read_output(path)
    assert found is not None
    whole = b"".join(lines)
    assert found.end == len(whole)
    assert found.dropped == 0
    assert len(found.data) == TAIL_BYTES
    assert found.data == whole[-TAIL_BYTES:]
    assert sum(each.stat().st_size for each in path.parent.iterdir()) < 3 * TAIL_BYTES


def test_a_long_line_is_cut_and_counted(path: Path) -> None:
    file = AttemptOutput(path)
    for _ in range(100):
        file.write("x" * 1000)
    file.write("\nnext\n")
    file.close()

    data = kept(path)
    first, second, _ = data.split(b"\n")
    assert first.startswith(b"x" * 8192)
    assert first.endswith(b"[91808 bytes of this line dropped]")
    assert second == b"next"


def test_a_flood_keeps_its_newest_lines_and_says_how_much_was_dropped(path: Path) -> None:
    clock = Clock()
    file = AttemptOutput(path, now_s=clock)
    lines = [f"line {number:06d}\n" for number in range(100_000)]
    for line in lines:
        file.write(line)
    clock.now = 1.0
    file.write("after\n")
    file.close()

    text = kept(path).decode()
    assert text.endswith("line 099999\nafter\n")
    [said] = [line for line in text.splitlines() if "dropped" in line]
    dropped = int(said[1:].split()[0])
    found = read_output(path)
    assert found is not None
    # everything that was printed was kept at its time, or is counted
    assert found.end - len(said) - 1 + dropped == sum(map(len, lines)) + len("after\n")


def test_the_last_lines_of_a_flood_are_kept_when_it_ends_within_the_second(path: Path) -> None:
    file = AttemptOutput(path, now_s=Clock())
    for number in range(100_000):
        file.write(f"line {number:06d}\n")
    file.close()
    assert kept(path).endswith(b"line 099999\n")


def test_what_is_printed_after_the_end_is_ignored(path: Path) -> None:
    file = AttemptOutput(path)
    file.write("one\n")
    file.close()
    file.write("two\n")
    file.flush()
    file.close()
    assert kept(path) == b"one\n"


def test_text_that_is_not_unicode_and_bytes_that_are_not_text_are_kept(path: Path) -> None:
    file = AttemptOutput(path)
    file.write("lone \ud800\n")
    file.write_bytes(b"\xff\x00\n")
    file.close()
    assert kept(path) == b"lone ?\n\xff\x00\n"


def test_a_folder_that_cannot_be_written_loses_the_output_only(tmp_path: Path) -> None:
    file = AttemptOutput(tmp_path / "missing" / "file")
    file.write("one\n")
    file.close()
    assert file.size == 0


@pytest.mark.parametrize("job", ["../../etc/passwd", "a" * 36 + "/x", "", ID + "\n", ID.upper()])
def test_only_the_id_of_a_job_names_a_file(tmp_path: Path, job: str) -> None:
    with pytest.raises(InvalidInput, match="^job:"):
        output_path(tmp_path, job, 1)


def test_a_damaged_file_is_no_output(path: Path) -> None:
    path.write_bytes(b"something else, which is long enough")
    assert read_output(path) is None


def test_old_and_then_the_oldest_files_are_pruned(tmp_path: Path) -> None:
    import os

    for number in range(10):
        file = tmp_path / str(number)
        file.write_bytes(b"x" * 100)
        os.utime(file, (1000 + number, 1000 + number))

    assert prune_output(tmp_path, now_s=1103, most_bytes=10_000, most_age_s=100) == 3
    assert prune_output(tmp_path, now_s=1103, most_bytes=450, most_age_s=100) == 3
    assert sorted(each.name for each in tmp_path.iterdir()) == ["6", "7", "8", "9"]
    assert prune_output(tmp_path / "missing", now_s=0) == 0
