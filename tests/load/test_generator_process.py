"""Whatever a generator process does or does not do, whoever waits for it is told within a bounded time.

Here a program of a few lines stands in for the generator: real processes, real signals, and none of what a real one
takes to be started.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable

import pytest

from mainstay.load.engine.messages import CollectProvided, Values, WindowReport, framed
from mainstay.load.generator_process import GeneratorLost, GeneratorProcess, Limits
from mainstay.load.stats.model import Window
from tests.load.test_run import alive

#: what only passes when something is amiss
HASTY = Limits(stopped_s=0.2, leave_s=0.5, tell_s=0.3, last_words_s=0.2, tick_s=0.05)
PATIENT = Limits()
ASK = CollectProvided(["Shop"])
HEAD = """
import os, signal, socket, struct, subprocess, sys, time
number = int(sys.argv[1])
link = socket.socket(fileno=number)
def heard():
    (length,) = struct.unpack("<I", link.recv(4, socket.MSG_WAITALL))
    return link.recv(length, socket.MSG_WAITALL)
def said(body):
    link.sendall(struct.pack("<I", len(body)) + body)
def end(how):
    os.kill(os.getpid(), how)
"""
ANSWER = framed(Values(values={"Shop": {"token": 5}}))[4:]


class Line:
    """A member whose process runs a program of ours."""

    def __init__(self, text: str, limits: Limits = HASTY) -> None:
        self.lines: list[tuple[int, str]] = []
        program = (sys.executable, "-S", "-c", f"{HEAD}\nANSWER = {ANSWER!r}\n{text}")
        self.member = GeneratorProcess(
            3, limits, lambda number, line: self.lines.append((number, line)), program=program
        )

    async def __aenter__(self) -> GeneratorProcess:
        await self.member.start()
        return self.member

    async def __aexit__(self, *_: object) -> None:
        await self.member.stop()
        assert not alive(self.member.pid)


async def lost(
    text: str,
    limits: Limits = HASTY,
    *,
    within_s: float = 60.0,
    on_window: Callable[[WindowReport], None] | None = None,
) -> str:
    """What is said of a process that does this."""
    async with Line(text, limits) as member:
        with pytest.raises(GeneratorLost) as caught:
            await asyncio.wait_for(member.ask(ASK, "it gave", within_s=within_s, on_window=on_window), 60)
        with pytest.raises(GeneratorLost) as again:
            await member.ask(ASK, "it gave more", within_s=within_s)
    assert again.value is caught.value
    return str(caught.value)


async def test_what_answers_is_not_lost() -> None:
    async with Line("heard(); said(ANSWER); heard(); said(ANSWER); heard()") as member:
        for _ in range(2):
            assert await member.ask(ASK, "it gave", within_s=60.0) == Values(values={"Shop": {"token": 5}})


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("end(signal.SIGKILL)", "generator 3 ended with signal 9, while it gave; its last output: nothing"),
        (
            "heard(); print('half', end='', flush=True); end(9)",
            "ended with signal 9, while it gave; its last output: half",
        ),
        ("print('a\\nb', flush=True); sys.exit(7)", "ended with code 7, while it gave; its last output: a\nb"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("heard(); link.sendall(b'\\x05\\0'); end(9)", "ended with signal 9"),
        ("said(b'no message')", "sent a message that cannot be read"),
    ],
)
async def test_a_process_that_ends_is_told_with_its_last_words(text: str, how: str) -> None:
    assert how in await lost(text, PATIENT)


@pytest.mark.parametrize("text", ["link.sendall(struct.pack('<I', 1 << 31))", "link.close()"])
async def test_a_process_that_hangs_up_and_stays_is_ended(text: str) -> None:
    assert "closed its connection to the run, while it gave" in await lost(f"{text}; time.sleep(60)")


async def test_a_process_that_never_answers_is_given_up_and_says_where_it_is() -> None:
    said = await lost(
        "import faulthandler\n"
        "faulthandler.register(signal.SIGUSR2, file=2, chain=True)\n"
        "def dream(): time.sleep(60)\n"
        "dream()",
        within_s=0.5,
    )

    assert "did not finish" in said
    assert "in dream" in said


async def test_a_process_that_takes_no_notice_of_being_told_to_end_is_ended() -> None:
    said = await lost(
        "signal.signal(signal.SIGUSR2, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)", within_s=0.5
    )

    assert "did not finish" in said


async def test_a_process_that_is_stopped_is_ended() -> None:
    assert "was stopped by a signal for 0.2 s, while it gave" in await lost("end(signal.SIGSTOP)")


async def test_a_process_that_sends_no_windows_while_there_is_load_is_ended() -> None:
    said = await lost("time.sleep(60)", Limits(silent_s=0.2, tell_s=0.3, tick_s=0.05), on_window=lambda _: None)

    assert "sent nothing for 0.2 s; does one of its steps block the event loop?" in said


async def test_a_process_that_says_nothing_while_nothing_is_due_has_its_time() -> None:
    async with Line("heard(); time.sleep(0.3); said(ANSWER); heard()", Limits(silent_s=0.05, tick_s=0.01)) as member:
        assert isinstance(await member.ask(ASK, "it gave", within_s=60.0), Values)


async def test_windows_without_end_do_not_put_off_the_end() -> None:
    body = framed(WindowReport(Window(bucket=1)))[4:]
    said = await lost(f"while True: said({body!r}); time.sleep(0.01)", within_s=0.5, on_window=lambda _: None)

    assert "did not finish" in said


async def test_what_a_process_has_started_may_hold_its_line_and_its_output_for_as_long_as_it_likes() -> None:
    began = time.monotonic()
    said = await lost(
        "os.set_inheritable(number, True)\n"
        "child = subprocess.Popen(['sleep', '60'], close_fds=False)\n"
        "print(child.pid, flush=True); end(9)",
        Limits(last_words_s=0.2),
    )

    assert time.monotonic() - began < 30
    assert "ended with signal 9" in said
    os.kill(int(said.split()[-1]), signal.SIGKILL)


async def test_a_stop_shortens_what_is_waited_for() -> None:
    async with Line("time.sleep(60)") as member:
        asking = asyncio.ensure_future(member.ask(ASK, "it gave", within_s=3600.0))
        await asyncio.sleep(0)
        member.hurry(0.2)
        with pytest.raises(GeneratorLost, match="did not finish"):
            await asyncio.wait_for(asking, 60)


async def test_megabytes_of_output_hold_nobody_up_and_are_bounded() -> None:
    line = Line(
        "for _ in range(300): os.write(1, b'x' * 9_999 + b'\\n')\n"
        "os.write(2, b'y' * 3_000_000)\n"
        "os.write(2, b'\\nlast')\n"
        "heard(); said(ANSWER); heard()"
    )
    async with line as member:
        await member.ask(ASK, "it gave", within_s=60.0)
        assert member._printed.last().endswith("last")

    assert all(number == 3 and len(text) <= 4003 for number, text in line.lines)
    assert line.lines[0][1].startswith("xxx")
    told = sum(len(text) for _, text in line.lines)
    held = [text for _, text in line.lines if text.startswith("... and ")]
    assert told < 2_000_000
    assert held
    assert line.lines[-1][1] == "last"


async def test_a_parent_that_reads_late_has_missed_nothing() -> None:
    body = framed(WindowReport(Window(bucket=1, examples={"e": "x" * 10_000})))[4:]
    seen: list[WindowReport] = []

    def slow(window: WindowReport) -> None:
        time.sleep(0.001)
        seen.append(window)

    async with Line(f"heard()\nfor _ in range(200): said({body!r})\nsaid(ANSWER); heard()") as member:
        await member.ask(ASK, "it gave", within_s=60.0, on_window=slow)

    assert len(seen) == 200


@pytest.mark.parametrize(("said", "threads"), [(None, "1"), ("3", "3")])
async def test_a_generator_starts_no_threads_for_algebra_unless_told_to(
    said: str | None, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setenv("OF_THE_USER", "as it was")
    if said is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", said)

    told = await lost("sys.exit(os.environ['OPENBLAS_NUM_THREADS'] + ' ' + os.environ['OF_THE_USER'])", PATIENT)

    assert told.endswith(f"its last output: {threads} as it was")


async def test_a_member_that_was_never_started_can_be_stopped() -> None:
    await Line("").member.stop()


async def test_a_process_that_cannot_be_started_leaves_nothing_open() -> None:
    member = GeneratorProcess(3, HASTY, lambda _, __: None, program=("/nowhere/python",))
    files = os.listdir("/proc/self/fd")

    with pytest.raises(FileNotFoundError):
        await member.start()
    await member.stop()
    await asyncio.sleep(0)

    assert len(os.listdir("/proc/self/fd")) <= len(files)


async def test_a_process_that_does_not_leave_is_ended_also_if_nobody_waits_for_it() -> None:
    line = Line("time.sleep(60)")
    await line.member.start()
    stopping = asyncio.ensure_future(line.member.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping

    assert not alive(line.member.pid)
    exited = line.member._exited
    assert exited is not None
    assert await asyncio.wait_for(exited, 60) == -signal.SIGKILL
