"""A manager that refuses calls: when they are made again, and how often."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from mainstay.bus import Admission, CallRate, MemoryBusNetwork, MessageClass
from mainstay.clock import SystemClock
from mainstay.errors import Overloaded, RateLimited, RequestTimeout, StoreError, StoreUnavailable
from mainstay.stores.memory import MemoryStore
from mainstay.stores.remote import MAINSTAY_VERSION, RemoteStore, StoreAnswer, StoreService, fault_of
from mainstay.testing import run_virtual
from mainstay.worker import PASSING, Outage

OURS = {"cluster": "test", "version": MAINSTAY_VERSION}


class RefusingBus:
    """A bus whose managers give these answers, one after another, and the last one for ever."""

    def __init__(self, *answers: Exception) -> None:
        self.name = "operator.ann"
        self.asked_s: list[float] = []
        self._answers = list(answers)

    async def request(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        del subject, body
        self.asked_s.append(asyncio.get_running_loop().time())
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, StoreError):
            return msgspec.msgpack.encode(StoreAnswer(m="m1", error=fault_of(answer)))
        await asyncio.sleep(timeout_s)
        raise answer

    @property
    def pauses_s(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.asked_s, self.asked_s[1:], strict=False)]


def remote(bus: object, *, seed: int = 1) -> RemoteStore:
    return RemoteStore(bus, role="operator", name="ann", rng=random.Random(seed), **OURS)  # type: ignore[arg-type]


@pytest.mark.parametrize("after_s", [0.001, 0.3, 1.0, 1.4])
def test_a_refused_call_is_not_repeated_before_its_time_nor_more_than_three_times(after_s: float) -> None:
    async def main() -> None:
        for seed in range(50):
            bus = RefusingBus(Overloaded("too many data requests wait at the manager", after_s))
            began_s = asyncio.get_running_loop().time()
            with pytest.raises(Overloaded) as refused:
                await remote(bus, seed=seed).stats()
            assert refused.value.retry_after_s == after_s
            assert all(pause_s >= after_s for pause_s in bus.pauses_s)
            assert len(bus.pauses_s) == 3 if after_s <= 1 else len(bus.pauses_s) in (2, 3)
            assert asyncio.get_running_loop().time() - began_s <= 5.0

    run_virtual(main())


def test_a_refusal_after_a_lost_answer_does_not_say_that_nothing_was_done() -> None:
    async def main() -> None:
        bus = RefusingBus(RequestTimeout("x", 1), Overloaded("too many dispatch requests wait", 0.5))
        with pytest.raises(StoreUnavailable):
            await remote(bus).insert([])

    run_virtual(main())


def test_a_refusal_says_when_on_the_bus() -> None:
    async def main() -> None:
        network, store = MemoryBusNetwork(), MemoryStore()
        rates = {MessageClass.DATA: CallRate(0.1, 2.0)}
        service = StoreService(store, network.client("m1"), manager="m1", admission=Admission(rates=rates), **OURS)
        await service.start()
        greedy = RemoteStore(network.client("operator.ann"), role="operator", name="ann", **OURS)
        other = RemoteStore(network.client("operator.ben"), role="operator", name="ben", **OURS)
        for _ in range(2):
            await greedy.stats()
        with pytest.raises(RateLimited, match=r"too many data requests of operator:ann; try again in 10 s") as limited:
            await greedy.stats()

        assert limited.value.retry_after_s == pytest.approx(10.0, abs=0.01)
        await other.stats()
        await greedy.open()  # control
        assert service.refused == {"rate": 1}
        await asyncio.sleep(limited.value.retry_after_s)
        await greedy.stats()
        await service.stop()
        await store.close()

    run_virtual(main())


def test_a_program_that_never_has_more_than_its_places_under_way_is_served_at_any_speed() -> None:
    async def main() -> None:
        network, store = MemoryBusNetwork(), MemoryStore(SystemClock())
        service = StoreService(store, network.client("m1"), manager="m1", **OURS)
        await service.start()
        busy = RemoteStore(network.client("operator.ann"), role="operator", name="ann", **OURS)
        await asyncio.gather(*(busy.stats() for _ in range(5000)))
        assert service.refused["rate"] > 0
        await service.stop()
        await store.close()

    run_virtual(main())


def test_a_worker_waits_for_a_busy_manager_as_for_a_store_that_is_away() -> None:
    outage = Outage("claim", random.Random(1))
    assert isinstance(RateLimited("claims", 3.0), PASSING)
    assert outage.failed(RateLimited("claims", 3.0)) == 3.0
    assert outage.failed(Overloaded("busy", 0.01)) >= 0.05
