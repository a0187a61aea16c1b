"""What is kept of a run while it is watched: sums stay exact, whatever is merged, and wherever a watcher goes on."""

from __future__ import annotations

import functools
import random
from array import array
from collections.abc import Sequence

import msgspec
from hypothesis import given, settings, strategies as st

from mainstay.load.fleet.live_cursor import LiveCursor, LiveMark
from mainstay.load.fleet.live_history import HistoryEntry, LiveHistory, LiveQuery
from mainstay.load.stats.histogram import sketch_of
from mainstay.load.stats.model import Moment, StepStats, Trust, Window, WorkflowResult
from mainstay.load.stats.tally import merge_windows
from tests.load.cli.moments import header

HEADER = header("browse")


@functools.cache
def window(number: int, *, steps: int = 1) -> Window:
    """Each has other counts, so that one that is lost or repeated shows."""
    rng = random.Random(number)
    return Window(
        bucket=17_000_000 + number,
        users=1 + number % 7,
        begun=1 + number,
        steps=[
            StepStats(
                workflow="browse",
                step=f"step{place}",
                ok=sketch_of(array("d", [rng.uniform(0.001, 0.2) for _ in range(4)])),
                errors={"timeout": number % 3},
            )
            for place in range(steps)
        ],
    )


def moment(number: int, *, steps: int = 1) -> Moment:
    phase = "running"
    return Moment(window=window(number, steps=steps), elapsed_s=(number + 1) / 10, phase=phase, trust=Trust())


def result(name: str) -> WorkflowResult:
    return WorkflowResult(workflow=name, elapsed_s=1.0)


def filled(windows: int, **sizes: int) -> LiveHistory:
    history = LiveHistory(HEADER, epoch=1, **sizes)
    for number in range(windows):
        history.add(moment(number))
    return history


def copy_of(leader: LiveHistory, *, most_bytes: int = 2_000) -> LiveHistory:
    """That of a server that has asked for everything, in parts."""
    copied = LiveHistory(HEADER, epoch=leader.epoch, whole=20, summed=5, sums=4)
    while True:
        query = LiveQuery(epoch=leader.epoch, windows=copied.windows, results=len(copied.results))
        answer = leader.answer(query, most_bytes=most_bytes)
        for entry in answer.entries:
            copied.add_entry(entry)
        copied.results += answer.results
        if not answer.more:
            return copied


def spans(entries: Sequence[HistoryEntry]) -> list[tuple[int, int]]:
    return [(each.begin, each.end) for each in entries]


class Client:
    """Adds up what it gets, and begins again when it is told to."""

    def __init__(self) -> None:
        self.windows: list[Window] = []
        self.results: list[str] = []
        self.begins = 0
        self.mark: LiveMark | None = None
        self.spans: list[tuple[int, int]] = []

    def read(self, history: LiveHistory, *, most: int | None = None, as_one: bool = False) -> None:
        """Connect, and take so many messages before the stream breaks."""
        cursor = LiveCursor(self.mark)
        for taken, update in enumerate(cursor.updates(history, as_one=as_one)):
            if taken == most:
                return
            if update.header is not None:
                self.begins += 1
                self.windows, self.spans = [], []
                continue
            if update.entry is not None:
                self.windows.append(update.entry.moment.window)
                self.spans.append((update.entry.begin, update.entry.end))
            if update.result is not None:
                self.results.append(update.result.workflow)
            self.mark = cursor.mark


def assert_has_all(client: Client, windows: int) -> None:
    assert [begin for begin, _ in client.spans] == [0, *(end for _, end in client.spans[:-1])]
    whole, expected = merge_windows(client.windows), merge_windows(map(window, range(windows)))
    assert (whole.begun, whole.bucket, whole.width) == (expected.begun, expected.bucket, expected.width)
    assert [step.errors for step in whole.steps] == [step.errors for step in expected.steps]
    for step, same in zip(whole.steps, expected.steps, strict=True):
        assert step.ok is not None
        assert same.ok is not None
        assert (step.ok.at, step.ok.n, step.ok.count) == (same.ok.at, same.ok.n, same.ok.count)


def test_a_watcher_that_comes_late_has_the_whole_last_minute_and_the_hour_coarsely() -> None:
    history = filled(2_250)
    client = Client()
    client.read(history)

    whole = [span for span in client.spans if span[1] - span[0] == 1]
    assert whole == [(number, number + 1) for number in range(1_650, 2_250)]
    assert client.spans[:17] == [*((begin, begin + 100) for begin in range(0, 1_600, 100)), (1_600, 1_650)]
    assert_has_all(client, 2_250)


def test_what_is_older_than_an_hour_is_one_sum() -> None:
    history = filled(200, whole=20, summed=10, sums=6)

    assert spans(list(history.entries()))[:8] == [
        (0, 110), (110, 120), (120, 130), (130, 140), (140, 150), (150, 160), (160, 170), (170, 180),
    ]  # fmt: skip
    client = Client()
    client.read(history)
    assert_has_all(client, 200)


@settings(max_examples=50)
@given(st.data())
def test_a_stream_that_is_broken_anywhere_goes_on_at_another_server_without_gap_or_repetition(
    data: st.DataObject,
) -> None:
    leader = LiveHistory(HEADER, epoch=1, whole=20, summed=5, sums=4)
    client, sent = Client(), 0
    for _ in range(data.draw(st.integers(1, 6), "connections")):
        for _ in range(data.draw(st.integers(0, 30), "new windows")):
            leader.add(moment(sent))
            sent += 1
            if data.draw(st.booleans(), "a workflow ends") and len(leader.results) < 3:
                leader.results.append(result(f"w{len(leader.results)}"))
        server = copy_of(leader, most_bytes=data.draw(st.sampled_from([1_000, 5_000, 500_000]), "bytes of an answer"))
        most = data.draw(st.none() | st.integers(0, 40), "messages until the break")
        client.read(server, most=most, as_one=data.draw(st.booleans(), "is behind"))
        if client.windows:
            assert_has_all(client, client.spans[-1][1])
    client.read(copy_of(leader))

    if sent:
        assert_has_all(client, sent)
    assert client.results == [each.workflow for each in leader.results]


def test_a_server_that_knows_less_than_the_client_sends_nothing_twice() -> None:
    client = Client()
    client.read(filled(30))
    behind = filled(25)
    client.read(behind)
    for number in range(25, 40):
        behind.add(moment(number))
    client.read(behind)

    assert client.begins == 1
    assert_has_all(client, 40)


def test_a_client_that_was_away_for_longer_than_a_minute_gets_one_sum_to_begin_with() -> None:
    client = Client()
    client.read(filled(33))
    later = filled(1_000)
    client.read(later)

    assert (client.begins, client.spans) == (2, [(0, 1_000)])
    assert_has_all(client, 1_000)


def test_a_client_that_is_far_behind_gets_the_sum_that_is_there() -> None:
    client = Client()
    client.read(filled(33))
    client.read(filled(183), as_one=True)
    begins, last = client.begins, client.spans[-1]
    client.read(filled(400), as_one=True)

    assert (begins, last) == (1, (33, 183))
    assert (client.begins, client.spans) == (2, [(0, 400)])


def test_a_client_begins_again_with_a_leader_that_has_taken_over_and_gets_each_workflow_once() -> None:
    first = filled(10)
    first.results.append(result("browse"))
    client = Client()
    client.read(first)
    second = LiveHistory(HEADER, epoch=2)
    second.results += [result("browse"), result("buy")]
    whole = msgspec.structs.replace(moment(29), window=merge_windows(map(window, range(30))))
    second.add(whole)
    client.read(second)
    client.read(first)

    assert (client.begins, client.results) == (2, ["browse", "buy"])
    assert merge_windows(client.windows).begun == sum(range(1, 31))


def test_a_server_that_has_missed_windows_says_so_by_their_numbers() -> None:
    history = filled(5)
    history.add(moment(9), number=9)

    found = history.after(5)
    assert found is not None
    assert spans(found) == [(9, 10)]
    assert history.windows == 10


def test_an_answer_is_smaller_than_a_message_and_the_first_one_is_coarse() -> None:
    history = filled(300, whole=100, summed=10, sums=30)
    answer = history.answer(LiveQuery(), most_bytes=20_000)

    assert (answer.more, answer.from_start) == (True, True)
    assert spans(answer.entries)[:2] == [(0, 10), (10, 20)]
    assert sum(len(each.packed) for each in answer.entries) <= 20_000


def test_an_entry_that_is_too_large_keeps_its_totals() -> None:
    history = LiveHistory(HEADER, epoch=1)
    history.add(moment(0, steps=50))
    (entry,) = history.answer(LiveQuery(), most_bytes=800).entries

    small, whole = entry.moment.window, moment(0, steps=50).window
    assert len(entry.packed) < 800
    assert (small.begun, small.users) == (whole.begun, whole.users)
    assert [(step.step, step.ok.count) for step in small.steps if step.ok is not None] == [("(all steps)", 200)]


def test_the_memory_of_an_hour_is_flat() -> None:
    # a tenth of the true sizes
    def kept(windows: int) -> int:
        history = LiveHistory(HEADER, epoch=1, whole=60, summed=10, sums=36)
        for number in range(windows):
            history.add(moment(number % 50, steps=3))
        return sum(len(each.packed) for each in history.entries())

    after_an_hour, after_ten = kept(460), kept(4_600)
    assert after_ten < 1.1 * after_an_hour


def test_the_mark_of_a_client_survives_its_way_as_text() -> None:
    for mark in (LiveMark(1, 20, 3), LiveMark(2, 0, 0, 17)):
        assert LiveMark.read(mark.text) == mark
