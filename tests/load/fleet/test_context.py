"""The context of a run on nodes: what setups return and workflows provide reaches the next layer as it was, whichever
leader starts it; what is too large is refused by name."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from mainstay.load.fleet.context_limit import CONTEXT_BYTES
from mainstay.load.fleet.record_size import RECORD_BYTES
from mainstay.testing import BusFaults
from sim.load_runner import SimulatedCode
from tests.load.fleet.fleet_trials import FleetTrial, with_fleet
from tests.load.fleet.test_successors import Leaders

TEXT = """
class Shop(Workflow):
    @setup
    async def log_in(self) -> str:
        return "token"

    @state("Checkout")
    def carts(self) -> Provide[str]:
        return "carts"

    @step()
    async def browse(self) -> None: ...


@depends("Shop")
class Checkout(Workflow):
    @setup
    async def open_till(self) -> str:
        return "till"

    @state("Shop")
    def taken(self, carts: str = "") -> Use[str]:
        return carts

    @step()
    async def pay(self) -> None: ...
"""
LOAD: dict[str, Any] = {"text": TEXT, "rate": "50/s", "duration": "5s"}
SHOP, CHECKOUT = {"log_in": "log_in 1"}, {"open_till": "open_till 1", "carts": "carts 1"}


def code(value_bytes: int = 0, *, set_up: bool = True, provide: bool = True) -> SimulatedCode:
    return SimulatedCode(
        set_ups={"Shop": ["log_in"], "Checkout": ["open_till"]} if set_up else {},
        provides={"Shop": ["carts"]} if provide else {},
        value_bytes=value_bytes,
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_next_layer_has_the_same_context_whenever_leaders_die(tmp_path: Path, seed: int) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        chance = random.Random(seed)
        while True:
            await asyncio.sleep(chance.uniform(0.2, 4))
            if leaders.runnings[-1].done():
                break
            leaders.hosts[-1].crash()
            await asyncio.sleep(chance.uniform(0.1, 3))
            leaders.lead()

        summary = await leaders.result()

        assert (summary.ended, summary.requests) == ("finished", 500)
        assert trial.fleet.code.contexts == {"Shop": [SHOP] * 3, "Checkout": [CHECKOUT] * 3}
        once = ("set_up Shop", "collect Shop", "set_up Checkout", "collect Checkout", "tear_down Shop")
        assert {name: trial.fleet.code.runs[name] for name in once} == dict.fromkeys(once, 1)

    with_fleet(test, tmp_path, [1, 2, 1], seed=seed, fleet={"code": code()}, **LOAD)


def test_a_replacement_in_the_middle_of_a_layer_has_the_context_of_the_lost_slice(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        while "Checkout" not in trial.fleet.code.contexts:
            await asyncio.sleep(0.1)
        leaders.hosts[-1].crash()
        trial.fleet.crash(1)
        leaders.lead()

        assert (await leaders.result()).ended == "finished"
        assert trial.fleet.code.contexts == {"Shop": [SHOP] * 2, "Checkout": [CHECKOUT] * 3}

    with_fleet(test, tmp_path, [1, 1], fleet={"code": code()}, **{**LOAD, "duration": "20s"})


def test_a_setup_that_returns_too_much_is_refused_by_name_before_any_load(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        summary = await trial.run.run()

        assert trial.fleet.sent == 0
        rule = "log_in returned 586 KiB; the context of a run on nodes has at most 480 KiB"
        assert summary.ended.startswith(f"failed: Shop: its setup failed: {rule}")
        assert summary.skipped["Checkout"].startswith("Shop failed, which it depends on")

    with_fleet(test, tmp_path, [1, 1], fleet={"code": code(600_000)}, **LOAD)


def test_a_workflow_that_provides_too_much_is_refused_by_name_before_the_next_layer(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        summary = await trial.run.run()

        assert trial.fleet.sent == summary.requests == 250
        assert "Shop: what it provides failed: carts returned 586 KiB; the context of a run on nodes" in summary.ended
        assert set(trial.fleet.code.contexts) == {"Shop"}

    with_fleet(test, tmp_path, [1, 1], fleet={"code": code(600_000, set_up=False)}, **LOAD)


def test_values_count_together_until_their_load_is_over(tmp_path: Path) -> None:
    large = CONTEXT_BYTES // 2 - 500

    async def test(trial: FleetTrial) -> None:
        sizes: list[int] = []
        trial.fleet.on_saved = lambda _: sizes.append(len(trial.fleet.stored))
        leaders = Leaders(trial)
        leaders.lead()
        while "Checkout" not in trial.fleet.code.contexts:
            await asyncio.sleep(0.1)
        leaders.hosts[-1].crash()
        leaders.lead()

        # three values of half the limit: that of the first setup is gone when the third is returned
        summary = await leaders.result()
        assert (summary.ended, summary.requests) == ("finished", 500)
        assert [len(value) for value in trial.fleet.code.contexts["Checkout"][0].values()] == [large, large]
        assert max(sizes) <= RECORD_BYTES

    with_fleet(test, tmp_path, [1, 1], fleet={"code": code(large), "faults": BusFaults(latency_s=0.005)}, **LOAD)


def test_a_layer_of_many_workflows_that_use_a_large_value_is_refused_by_name(tmp_path: Path) -> None:
    users = "\n".join(
        f"""
@depends("Shop")
class Pay{n}(Workflow):
    @state("Shop")
    def taken(self, carts: str = "") -> Use[str]:
        return carts

    @step()
    async def pay(self) -> None: ...
"""
        for n in range(4)
    )
    names = ", ".join(f'"Pay{n}"' for n in range(4))
    text = f"""
class Shop(Workflow):
    @state({names})
    def carts(self) -> Provide[str]:
        return "carts"

    @step()
    async def browse(self) -> None: ...
{users}"""

    async def test(trial: FleetTrial) -> None:
        summary = await trial.run.run()

        assert set(trial.fleet.code.contexts) == {"Shop", "Pay0", "Pay1"}
        rule = "with it, the workflows that run together get 586 KiB of context from others; at most 480 KiB"
        assert summary.skipped["Pay2"].startswith(f"its setup failed: {rule}")
        assert summary.skipped["Pay3"].startswith(f"its setup failed: {rule}")

    with_fleet(test, tmp_path, [1, 1], fleet={"code": code(200_000, set_up=False)}, **{**LOAD, "text": text})
