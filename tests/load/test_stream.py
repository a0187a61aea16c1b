"""The recorded stream: nothing is lost on its way to the file, and what is there of a killed run can be read."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
import zstandard

from mainstay.errors import InvalidInput
from mainstay.load.stats.grammar import parse
from mainstay.load.stats.model import Health, Moment, SliceReport, Summary, Trust, Window
from mainstay.load.stats.tally import RunTally
from mainstay.load.stats.thresholds import ThresholdJudge
from mainstay.load.stats.trust import TrustWatch
from mainstay.load.stream import RecordedStream, StreamOutput, remade
from tests.load.stats.made import header, step, window

full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")

THRESHOLDS = ("p95 of browse < 200ms for 2s", "error rate < 1%")


def moment(one: Window) -> Moment:
    return Moment(window=one, elapsed_s=0.0, phase="running", trust=Trust())


def run(tenths: int = 34) -> list[Window]:
    made = []
    for at in range(tenths):
        one = window(at, step(ok=(0.1 + at / 7, 0.3), failed=(0.5,) if at % 9 == 0 else ()), users=at)
        one.health = {0: Health(lag=0.001, cpu=0.95)}
        one.sent_calls, one.answered_calls = 5, 4
        made.append(one)
    return made


async def recorded(path: Path, windows: Iterable[Window]) -> Summary:
    """Record them as a run does, and answer the summary it would have."""
    output, top = StreamOutput(path), header(thresholds=THRESHOLDS)
    tally, judge, watch = RunTally(top), ThresholdJudge([parse(text) for text in THRESHOLDS]), TrustWatch()
    await output.start(top)
    for one in windows:
        output.add(moment(one))
        for each in (tally, judge, watch):
            each.add(one)
    summary = tally.summary(
        elapsed_s=3.5,
        thresholds=judge.finish(),
        trust=watch.finish(),
        verdict="failed",
        stream=str(path),
        slices=[SliceReport(slice=0, node="n1", processes=2, requests=7)],
    )
    await output.stop(summary)
    return summary


@pytest.fixture(params=["run.ndjson", "run.ndjson.zst"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / request.param


async def test_a_summary_made_from_the_stream_is_the_recorded_one(path: Path) -> None:
    summary = await recorded(path, run())
    assert remade(path) == summary
    stream = RecordedStream(path)
    assert [one.width for one in stream.windows()] == [10, 10, 10, 4]
    assert (stream.torn, stream.header) == ("", summary.header)
    assert stream.end == msgspec.structs.replace(summary, points=[])


async def test_gaps_between_windows_do_not_shift_the_seconds(path: Path) -> None:
    windows = [one for one in run(40) if one.bucket % 10 in (3, 4)]
    summary = await recorded(path, windows)
    assert remade(path) == summary
    assert [point.at_s for point in summary.points] == [0.0, 1.0, 2.0, 3.0]


async def test_each_line_is_one_json_object_of_a_kind(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    await recorded(path, run(20))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["type"] for line in lines] == ["run", "window", "window", "end"]
    assert lines[0]["name"] == "shop"
    assert lines[-1]["requests"] == 43
    assert lines[-1]["points"] == []


async def test_a_run_without_windows_has_a_stream_too(path: Path) -> None:
    summary = await recorded(path, [])
    assert remade(path) == summary
    assert summary.requests == 0


async def test_a_torn_last_line_is_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    await recorded(path, run(30))
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b'{"type":"end"') - 20])
    stream = RecordedStream(path)
    assert len(list(stream.windows())) == 2
    assert stream.end is None
    assert stream.torn == f"the last line of {path} is torn and was skipped"
    summary = remade(path)
    assert summary.requests == 43
    assert summary.ended.startswith("lost: the recording has 2 s and no end; the last line of")
    # judged anew: the first two seconds are too slow, and some calls failed
    assert [outcome.passed for outcome in summary.thresholds] == [False, False]
    assert summary.verdict == "lost"


async def test_what_is_cut_off_anywhere_is_read_up_to_there(path: Path) -> None:
    await recorded(path, run(200))
    whole = path.read_bytes()
    found = []
    # the last bytes of a compressed stream close it, and hold nothing of what is in it
    for at in range(len(whole) // 4, len(whole) - 16, len(whole) // 40):
        path.write_bytes(whole[:at])
        stream = RecordedStream(path)
        found.append(len(list(stream.windows())))
        assert stream.end is None
    assert found == sorted(found)
    assert found[0] < found[-1] <= 20


async def test_a_run_without_its_end_is_judged_anew_as_it_was_judged(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    summary = await recorded(path, run(50))
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b'{"type":"end"')])
    again = remade(path)
    assert again.thresholds == summary.thresholds
    cut, *reasons = again.trust.reasons
    assert cut.startswith("the recording has no end: requests, errors and iterations are a lower bound")
    assert reasons == summary.trust.reasons != []
    assert (again.steps[0].service, again.points) == (summary.steps[0].service, summary.points)


async def test_damage_before_the_end_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    await recorded(path, run(20))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = b'{"type":"window","bucket":"x"}\n'
    path.write_bytes(b"".join(lines))
    with pytest.raises(InvalidInput, match=r"line 2 of .* cannot be read"):
        list(RecordedStream(path).windows())


@pytest.mark.parametrize("content", [b"", b"hello\n", b'{"type":"window"}\n', b'{"requests":3}\n{}\n'])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"is not a recorded load test|cannot be read"):
        RecordedStream(other)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        RecordedStream(tmp_path / "none")


async def test_a_place_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be written"):
        await StreamOutput(tmp_path / "no" / "folder" / "run.ndjson").start(header())


@full_disk
async def test_a_disk_that_is_full_is_told_before_the_run() -> None:
    output = StreamOutput("/dev/full")
    with pytest.raises(InvalidInput, match="No space left"):
        await output.start(header())


@full_disk
async def test_a_disk_that_fills_up_is_told_by_what_comes_next(tmp_path: Path) -> None:
    output = StreamOutput(tmp_path / "run.ndjson")
    await output.start(header())
    before, output._lines._file = output._lines._file, Path("/dev/full").open("wb")  # noqa: SIM115 - closed by the output
    before.close()
    windows = run(12)
    for one in windows[:10]:
        output.add(moment(one))
    assert isinstance(output._written.exception(), OSError)
    with pytest.raises(OSError, match="No space left"):
        output.add(moment(windows[10]))
    with pytest.raises(OSError, match="No space left"):
        await output.stop(RunTally(header()).summary())


async def test_a_file_that_is_removed_meanwhile_is_told_in_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    output = StreamOutput(folder / "run.ndjson")
    await output.start(header())
    shutil.rmtree(folder)

    with pytest.raises(InvalidInput, match=r"run\.ndjson' was removed"):
        await output.stop(RunTally(header()).summary())


async def test_adding_does_not_wait_for_the_file(tmp_path: Path) -> None:
    output = StreamOutput(tmp_path / "run.ndjson")
    await output.start(header())
    gate = threading.Event()
    # the file's own thread is held up; what is added meanwhile is written later
    output._thread.submit(gate.wait)
    windows = run(30)
    for one in windows:
        output.add(moment(one))
    assert not output._written.done()
    gate.set()
    await output.stop(RunTally(header()).summary())
    assert len(list(RecordedStream(output.path).windows())) == 3


KILLED = """
import asyncio, sys
from mainstay.load.stream import StreamOutput
from tests.load.stats.made import header
from tests.load.test_stream import moment, run

async def main():
    output = StreamOutput(sys.argv[1])
    await output.start(header())
    for one in run(25):
        output.add(moment(one))
    await asyncio.wrap_future(output._written)
    print("written", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_killed_run_leaves_a_stream_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson.zst"
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True, cwd=root
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "written\n"
        running = remade(path)
        child.send_signal(signal.SIGKILL)
    assert (running.ended, running.verdict) == ("running", "running")
    stream = RecordedStream(path)
    assert [one.width for one in stream.windows()] == [10, 10]
    assert stream.end is None
    killed = remade(path)
    assert killed.ended == "lost: the recording has 2 s and no end; the run was killed"
    assert killed.verdict == "lost"
    assert killed.requests == running.requests > 0


async def test_a_name_that_ends_in_zst_is_compressed(tmp_path: Path) -> None:
    plain, packed = tmp_path / "run.ndjson", tmp_path / "run.ndjson.zst"
    await recorded(plain, run())
    await recorded(packed, run())
    unpacked = zstandard.ZstdDecompressor().decompressobj().decompress(packed.read_bytes())
    assert unpacked.replace(str(packed).encode(), str(plain).encode()) == plain.read_bytes()
    assert packed.stat().st_size < plain.stat().st_size / 2
