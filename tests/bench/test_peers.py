"""Every system can be set up and talked to in the same way, without its packages being here."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import fleet
from bench.environments import REQUIREMENTS
from bench.peers import catalog, slots
from bench.peers.slots import Slots

ROOT = Path(__file__).parents[2]
SYSTEMS = fleet.systems().values()


@pytest.mark.parametrize("app", sorted({system.app for system in SYSTEMS}))
def test_an_app_module_offers_what_a_producer_asks_for(app: str) -> None:
    source = (ROOT / app.replace(".", "/")).with_suffix(".py").read_text()
    functions = {
        node.name: [arg.arg for arg in node.args.args]
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert functions["reset"] == []
    assert functions["submit_one"] == ["i"]
    assert functions["submit_sleeper"] == ["tag", "seconds"]
    assert functions.get("submit_many", ["n"]) == ["n"]


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_what_a_system_needs_is_pinned_to_a_version(system: catalog.System) -> None:
    if system.requirements is None:
        assert system.name.startswith("mainstay-")
        return
    lines = (REQUIREMENTS / f"{system.requirements}.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]

    assert all(re.fullmatch(r"[a-z\[\],-]+==[0-9.]+", pin) for pin in pins)
    assert any(re.match(rf"{system.package}(\[[a-z]+\])?==", pin) for pin in pins)


def test_workers_are_counted_by_one_command_or_by_one_command_each() -> None:
    systems = fleet.systems()

    assert [command[-1] for command in systems["celery"].commands("bin", 2)] == ["bench0@localhost", "bench1@localhost"]
    (ours,) = systems["mainstay-sqlite"].commands("bin", 2)
    assert ours[:2] == ["bin/mainstay", "worker"]
    assert ours[ours.index("--processes") + 1] == "2"


def test_mainstay_runs_on_every_server_that_a_peer_runs_on() -> None:
    servers = {system.server for system in SYSTEMS if not system.name.startswith("mainstay-")}

    assert {system.server for system in catalog.OURS} == {*servers, None}


def test_a_variant_is_of_a_system_that_is_there() -> None:
    assert all(system.variant_of in fleet.systems() for system in SYSTEMS if system.variant_of)


def test_an_unknown_system_is_refused_with_the_names_there_are() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench", "--systems", "rabbit"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert run.returncode == 2
    assert "no such system: rabbit; there are celery, dramatiq" in " ".join(run.stderr.split())


def test_a_slot_keeps_the_first_start_and_counts_the_others(tmp_path: Path) -> None:
    here, there = Slots(tmp_path / "slots"), Slots(tmp_path / "slots")

    here.mark(3)
    first = there.started(3, 1)
    here.mark(3)

    assert first == there.started(3, 1) != [0]
    assert there.started(0, 3) == [0, 0, 0]
    assert there.repeats == 1
    there.clear()
    assert here.started(3, 1) == [0]


def test_each_start_of_a_sleeper_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_STARTS", str(tmp_path / "starts"))

    slots.sleep("a", 0)
    slots.sleep("b", 0)
    slots.sleep("a", 0)

    first, second = slots.notes(tmp_path / "starts", "a", "start")
    assert first < second
    assert len(slots.notes(tmp_path / "starts", "b", "end")) == 1
    assert slots.notes(tmp_path / "nothing", "a", "start") == []


PEER = """
import asyncio
print("noise")
seen = []
def reset(): seen.clear()
async def submit_one(i): seen.append(i)
def submit_many(n): seen.extend(range(n))
def submit_sleeper(tag, seconds): seen.append(tag)
def settled(): return len(seen)
"""


def test_a_producer_answers_line_by_line_for_plain_and_async_functions(tmp_path: Path) -> None:
    (tmp_path / "peer.py").write_text(PEER)
    requests = [
        {"do": "reset"},
        {"do": "one", "i": 7},
        {"do": "singly", "n": 3},
        {"do": "can", "what": "submit_many"},
        {"do": "can", "what": "fly"},
        {"do": "bulk", "n": 4},
        {"do": "steadily", "first": 10, "n": 2, "rate": 1000},
        {"do": "sleeper", "tag": "t", "seconds": 0},
        {"do": "settled"},
    ]

    run = subprocess.run(
        [sys.executable, "-m", "bench.peers.producer", "peer"],
        input="".join(json.dumps(request) + "\n" for request in requests),
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )

    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == len(requests)
    assert answers[3:5] == [True, False]
    assert len(answers[6]) == 2
    assert answers[-1] == 1 + 3 + 4 + 2 + 1
