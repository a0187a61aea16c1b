"""Environments and worker processes are made for a run and gone after it."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import pytest

from bench import environments
from bench.peers.catalog import System
from bench.stands import Stand, StandFailed, Workers


def test_an_environment_is_made_once_and_again_when_its_requirements_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    made: list[str] = []

    def install(folder: Path, python: Path, requirements: Path) -> None:
        folder.mkdir(parents=True)
        made.append(requirements.read_text())

    for wanted in ("a==1", "a==1", "a==2"):
        (tmp_path / "peer.txt").write_text(wanted)
        environments.python_of("peer", install=install)

    assert made == ["a==1", "a==2"]


def test_an_environment_that_could_not_be_made_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    (tmp_path / "peer.txt").write_text("a==1")
    tries: list[Path] = []

    def install(folder: Path, python: Path, requirements: Path) -> None:
        tries.append(folder)
        raise environments.InstallFailed("no network")

    for _ in range(2):
        with pytest.raises(environments.InstallFailed):
            environments.python_of("peer", install=install)

    assert len(tries) == 2


def test_ours_is_the_environment_that_runs_the_bench() -> None:
    assert environments.python_of(None) == Path(sys.executable)
    assert environments.version(Path(sys.executable), "mainstay") == "0.1.0.dev0"


FAMILY = """
import subprocess, sys, time
while time.process_time() < 0.03: pass
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


def test_killing_a_worker_reaches_children_in_sessions_of_their_own(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    workers = Workers([[sys.executable, "-c", FAMILY]], dict(os.environ), tmp_path)
    while not (said := log.read_text()).endswith("\n"):
        assert not workers.died()
    rss_mb, pss_mb = workers.memory_mb()
    cpu_s = workers.cpu_s()
    child = os.pidfd_open(int(said))

    workers.kill()

    assert 0 < pss_mb <= rss_mb
    assert cpu_s > 0
    assert workers.died()
    assert select.select([child], [], [], 60)[0], "it is dead"
    os.close(child)


def test_a_producer_that_dies_is_reported_with_what_it_said(tmp_path: Path) -> None:
    system = System(name="nothing", title="Nothing", app="nothing", package="nothing", setting="", worker=())
    stand = Stand(system, Path(sys.executable), "memory:", tmp_path, tmp_path / "slots")
    try:
        with pytest.raises(StandFailed, match="producer of Nothing ended at `reset`"):
            stand.ask("reset")
    finally:
        stand.close()
    assert "No module named 'nothing'" in (tmp_path / "producer.log").read_text()
