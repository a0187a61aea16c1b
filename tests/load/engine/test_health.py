"""What a generator process finds out about itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mainstay.load.engine.health import HealthMonitor, ThreadWait, ThreadWaitReader
from mainstay.load.stats.model import WINDOW_MS, Window
from mainstay.load.stats.trust import TrustWatch


def system(folder: Path, *, group: str = "0::/", schedstat: str | None = None, **throttled: int) -> ThreadWaitReader:
    """The files of a Linux; `throttled`: µs, by the control group."""
    proc, groups = folder / "proc", folder / "cgroup"
    for part in (proc / "self", proc / "thread-self", groups):
        part.mkdir(parents=True, exist_ok=True)
    (proc / "self" / "cgroup").write_text(f"4:memory:/x\n{group}\n")
    if schedstat is not None:
        (proc / "thread-self" / "schedstat").write_text(schedstat)
    for name, value in throttled.items():
        inside = groups / name.replace("_", "/").strip("/")
        inside.mkdir(parents=True, exist_ok=True)
        (inside / "cpu.stat").write_text(f"usage_usec 7\nnr_throttled 2\nthrottled_usec {value}\n")
    return ThreadWaitReader(proc, groups)


def test_the_wait_of_a_thread_is_the_second_number_of_its_schedstat(tmp_path: Path) -> None:
    assert system(tmp_path, schedstat="9000000000 1500000000 12\n").read() == ThreadWait(1.5, 0.0)


def test_a_quota_of_any_group_around_the_process_is_told(tmp_path: Path) -> None:
    holds = system(tmp_path, group="0::/shop/load", shop=250_000, shop_load=0, other=9_000_000)

    assert holds.read() == ThreadWait(None, 0.25)


def test_where_nothing_is_told_nothing_is_known(tmp_path: Path) -> None:
    assert ThreadWaitReader(tmp_path / "none", tmp_path / "none").read() == ThreadWait(None, 0.0)
    assert system(tmp_path, group="1:cpu:/old", schedstat="not numbers").read() == ThreadWait(None, 0.0)


def taken(*held: ThreadWait) -> list[tuple[float, float]]:
    """What is told between each of these and the next."""
    told = iter(held)
    watch = HealthMonitor(asyncio.get_running_loop(), lambda: next(told))
    return [(health.waited, health.throttled) for health in (watch.take() for _ in held[1:])]


async def test_a_wait_is_told_since_the_last_time() -> None:
    assert taken(ThreadWait(5.0, 0.0), ThreadWait(5.25, 0.0), ThreadWait(5.25, 0.0)) == [(0.25, 0.0), (0.0, 0.0)]


async def test_a_wait_that_is_told_twice_is_one() -> None:
    assert taken(ThreadWait(0.0, 1.0), ThreadWait(4.0, 3.0)) == [(4.0, 2.0)]


async def test_a_quota_counts_where_the_thread_itself_is_told_nothing_of_but_no_longer_than_it_was() -> None:
    ((waited, throttled),) = taken(ThreadWait(None, 0.0), ThreadWait(None, 60.0))

    assert 0 < waited < throttled == 60.0


async def test_a_generator_that_has_to_wait_for_a_core_is_not_trusted() -> None:
    """From the number that the system counts up to the judgement."""
    share, windows = 0.3, 40
    told = (ThreadWait(share * n * WINDOW_MS / 1000, 0.0) for n in range(windows + 1))
    watch, trust = HealthMonitor(asyncio.get_running_loop(), lambda: next(told)), TrustWatch()

    for bucket in range(windows):
        trust.add(Window(bucket=bucket, health={0: watch.take()}))

    (reason,) = [one for one in trust.finish().reasons if "no core" in one]
    assert reason.startswith("process 0 was ready to run but had no core for 30 % of 3 s, and times include that")
