"""The event loop in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import warnings

import pytest

from mainstay.errors import MainstayError
from mainstay.testing import Deadlock, HostClock, LoopClock, VirtualLoop, run_virtual
from mainstay.testing.virtual_loop import virtual_loop


def order_of(seed: int) -> list[int]:
    """The order in which ten tasks run that are ready at the same moment."""
    order: list[int] = []

    async def step(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            order.append(number)

    async def main() -> None:
        await asyncio.gather(*(step(number) for number in range(10)))

    run_virtual(main(), seed=seed)
    return order


def test_a_seed_decides_the_order_of_tasks() -> None:
    assert order_of(1) == order_of(1)
    assert len({tuple(order_of(seed)) for seed in range(20)}) == 20


def test_callbacks_that_are_no_tasks_keep_their_order() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(50):
            loop.call_soon(order.append, number)
        await asyncio.sleep(0.001)
        return order

    assert run_virtual(main(), seed=3) == list(range(50))


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        times = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        times.append(loop.time())
        await asyncio.sleep(0.5)
        return [*times, loop.time()]

    assert run_virtual(main()) == [3600.0, 3600.5]


def test_a_wait_that_cannot_end_is_an_error_at_once() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="no timer is set"):
        run_virtual(main())


def test_an_error_that_no_code_handles_ends_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        run_virtual(main())


def test_functions_for_threads_run_on_the_loop() -> None:
    async def main() -> tuple[str, str]:
        first = await asyncio.to_thread(str.upper, "a")
        try:
            await asyncio.to_thread(int, "b")
        except ValueError as error:
            return first, str(error)
        return first, ""

    first, error = run_virtual(main())
    assert first == "A"
    assert "invalid literal" in error


def test_a_crashed_host_runs_no_more_code_not_even_its_finally() -> None:
    with virtual_loop() as loop:
        host, log = loop.host("a"), []

        async def work() -> None:
            try:
                while True:
                    await asyncio.sleep(1)
                    log.append(loop.time())
            finally:
                log.append("finally")

        async def main() -> None:
            host.start(work())
            await asyncio.sleep(2.5)
            host.crash()
            await asyncio.sleep(100)
            assert not host.alive

        loop.run_until_complete(main())
        assert log == [1.0, 2.0]
        with pytest.raises(MainstayError, match="the host a has crashed"):
            host.start(work())


def test_tasks_that_a_host_starts_crash_with_it() -> None:
    with virtual_loop() as loop:
        host, log = loop.host("a"), []

        async def child() -> None:
            await asyncio.sleep(5)
            log.append("child")

        async def parent() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())

        async def main() -> None:
            host.start(parent())
            await asyncio.sleep(1)
            host.crash()
            await asyncio.sleep(10)

        loop.run_until_complete(main())
        assert log == []


def test_a_frozen_host_goes_on_late() -> None:
    with virtual_loop() as loop:
        host, log = loop.host("a"), []

        async def work() -> None:
            await asyncio.sleep(1)
            log.append(loop.time())
            await asyncio.sleep(1)
            log.append(loop.time())

        async def main() -> None:
            task = host.start(work())
            host.freeze()
            await asyncio.sleep(60)
            assert log == []
            host.thaw()
            await task

        loop.run_until_complete(main())
        # its first sleep began when it went on: the task had not run before
        assert log == [61.0, 62.0]


def test_a_timer_of_a_frozen_host_fires_when_the_host_goes_on() -> None:
    with virtual_loop() as loop:
        host, log = loop.host("a"), []

        async def work() -> None:
            await asyncio.sleep(1)
            log.append(loop.time())

        async def main() -> None:
            task = host.start(work())
            await asyncio.sleep(0.5)
            host.freeze()
            await asyncio.sleep(60)
            host.thaw()
            await task

        loop.run_until_complete(main())
        assert log == [60.5]


def test_a_process_on_a_host_freezes_and_crashes_with_it_and_can_be_killed_alone() -> None:
    with virtual_loop() as loop:
        machine = loop.host("a")
        process, other = loop.host("a/1", on=machine), loop.host("a/2", on=machine)
        log: list[tuple[str, float]] = []

        async def work(name: str) -> None:
            while True:
                await asyncio.sleep(1)
                log.append((name, loop.time()))

        async def main() -> None:
            process.start(work("one"))
            other.start(work("two"))
            await asyncio.sleep(0.5)
            other.crash()
            machine.freeze()
            await asyncio.sleep(5)
            assert log == []
            machine.thaw()
            await asyncio.sleep(0.1)
            machine.crash()
            await asyncio.sleep(5)

        loop.run_until_complete(main())
        assert (machine.alive, process.alive, other.alive) == (False, False, False)
        assert log == [("one", 5.5)]


def test_the_same_seed_takes_the_same_steps() -> None:
    async def main() -> int:
        lock = asyncio.Lock()

        async def worker(number: int) -> None:
            for _ in range(5):
                async with lock:
                    await asyncio.sleep(0.01 * number)

        await asyncio.gather(*(worker(number) for number in range(5)))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop.steps

    assert run_virtual(main(), seed=9) == run_virtual(main(), seed=9)


def test_a_clock_follows_the_loop_and_can_be_off() -> None:
    with virtual_loop() as loop:
        right, wrong = LoopClock(loop), LoopClock(loop, skew_s=-600)
        began_ms = right.now_ms()

        loop.run_until_complete(asyncio.sleep(8))

        assert right.now_ms() - began_ms == right.lease_ms() - began_ms == 8000
        assert right.now_ms() - wrong.now_ms() == 600_000
        assert right.lease_ms() == wrong.lease_ms()


def test_a_timer_that_is_cancelled_while_its_host_is_frozen_does_not_fire() -> None:
    with virtual_loop() as loop:
        host, log = loop.host("a"), []

        async def work() -> None:
            timer = loop.call_later(1, log.append, "fired")
            host.freeze()
            loop.call_later(5, timer.cancel, context=contextvars.Context())
            loop.call_later(6, host.thaw, context=contextvars.Context())
            await asyncio.sleep(10)

        loop.run_until_complete(host.start(work()))
        assert log == []


def test_an_error_on_a_host_ends_the_run() -> None:
    with virtual_loop() as loop:

        async def work() -> None:
            await asyncio.sleep(1)
            raise ValueError("broken")

        async def main() -> None:
            loop.host("a").start(work())
            await asyncio.sleep(60)

        with pytest.raises(ValueError, match="broken"):
            loop.run_until_complete(main())


@pytest.mark.parametrize("has_loop", [True, False])
def test_what_a_crashed_host_would_clean_up_reaches_no_loop_and_is_not_reported(has_loop: bool) -> None:
    real = asyncio.new_event_loop() if has_loop else None
    asyncio.set_event_loop(real)
    run = []

    async def stop() -> None:
        run.append("stop")

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await asyncio.gather(stop(), stop())
            finally:
                asyncio.get_running_loop().create_future().set_exception(ConnectionError("lost"))
                later = asyncio.create_task(stop(), name="later")
                await asyncio.wait([later], timeout=1)
                await asyncio.sleep(1)
                run.append("slept")

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with virtual_loop() as loop:
            host = loop.host("a")
            host.start(work())
            loop.run_until_complete(asyncio.sleep(1))
            host.crash()
        gc.collect()

    if real is not None:
        real.run_until_complete(asyncio.sleep(0))
        real.close()
        asyncio.set_event_loop(None)
    assert run == []
    assert [str(warning.message) for warning in warned] == []


def test_a_host_with_a_clock_of_its_own_waits_by_it() -> None:
    with virtual_loop() as loop:
        fast, log = loop.host("a", clock=HostClock(began_s=500.0, rate=1.25)), []

        async def work() -> None:
            for _ in range(2):
                await asyncio.sleep(10)
                log.append((loop.time(), loop.true_s))
            process = loop.host("a/1")
            log.append((process.clock, loop.running_host))

        async def main() -> None:
            fast.start(work())
            await asyncio.sleep(100)
            assert loop.time() == loop.true_s == 100

        loop.run_until_complete(main())
        assert log[:2] == [(pytest.approx(510), pytest.approx(8)), (pytest.approx(520), pytest.approx(16))]
        assert log[2] == (fast.clock, fast)


def test_a_timer_of_a_host_with_a_clock_of_its_own_never_fires_early() -> None:
    with virtual_loop() as loop:
        host = loop.host("a", clock=HostClock(began_s=98_765.4321, rate=1.0001234))

        async def work() -> None:
            for _ in range(1000):
                due_s = loop.time() + 0.1
                await asyncio.sleep(0.1)
                assert due_s <= loop.time() < due_s + 1e-6

        loop.run_until_complete(host.start(work()))
