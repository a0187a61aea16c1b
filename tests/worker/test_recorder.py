"""The flight recorder: what one process writes, another reads, also when the writer is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from mainstay.worker.recorder import Recorder, Running

SLOTS = 6

WRITER = """
import os, signal, sys
from mainstay.worker.recorder import Recorder

recorder = Recorder(int(sys.argv[1]))
recorder.tick()
recorder.begin(0, "0" * 36, token=1, started_ms=10, deadline_ms=0)
recorder.begin(1, "1" * 36, token=2, started_ms=20, deadline_ms=99)
recorder.end(0)
os.kill(os.getpid(), signal.SIGKILL)
"""

numbers = st.integers(0, 2**62)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, SLOTS - 1), st.uuids(version=4), numbers, numbers, numbers),
        st.tuples(st.just("end"), st.integers(0, SLOTS - 1)),
        st.tuples(st.just("move"), st.integers(0, SLOTS - 1), numbers),
    ),
    max_size=40,
)


@given(steps)
def test_a_reader_sees_what_runs_and_nothing_else(steps: list[tuple[object, ...]]) -> None:
    recorder = Recorder.create(SLOTS)
    reader = Recorder(os.dup(recorder.fd))
    model: dict[int, Running] = {}
    try:
        for step in steps:
            match step:
                case ("begin", int(slot), job_id, int(token), int(started_ms), int(deadline_ms)):
                    recorder.begin(slot, str(job_id), token=token, started_ms=started_ms, deadline_ms=deadline_ms)
                    model[slot] = Running(str(job_id), token, started_ms, deadline_ms)
                case ("end", int(slot)):
                    recorder.end(slot)
                    model.pop(slot, None)
                case ("move", int(slot), int(deadline_ms)):
                    recorder.move_deadline(slot, deadline_ms)
                    if slot in model:
                        was = model[slot]
                        model[slot] = Running(was.job_id, was.token, was.started_ms, deadline_ms)
            assert reader.running() == [model[slot] for slot in sorted(model)]
    finally:
        recorder.close()
        reader.close()


def test_what_a_killed_process_wrote_is_still_there() -> None:
    recorder = Recorder.create()
    try:
        done = subprocess.run([sys.executable, "-c", WRITER, str(recorder.fd)], pass_fds=(recorder.fd,), check=False)

        assert done.returncode == -signal.SIGKILL
        assert recorder.running() == [Running("1" * 36, 2, 20, 99)]
        assert recorder.ticks == 1
    finally:
        recorder.close()


@pytest.mark.parametrize("slot", [-1, SLOTS])
def test_a_slot_that_is_not_there_is_refused(slot: int) -> None:
    recorder = Recorder.create(SLOTS)
    try:
        with pytest.raises(IndexError, match=f"has {SLOTS} slots"):
            recorder.begin(slot, "x", token=1, started_ms=1, deadline_ms=1)
        with pytest.raises(IndexError):
            recorder.end(slot)
        assert recorder.running() == []
    finally:
        recorder.close()
