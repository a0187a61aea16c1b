"""The soak of clusters runs, and sees what is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from soak import cluster
from soak.cluster import CycleReport

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_clusters_that_start_and_stop_leave_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "reports.json"
    run = subprocess.run(
        [sys.executable, "-m", "soak.cluster", "--cycles", "3", "--nodes", "0", "--json", str(kept)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    [report] = msgspec.json.decode(kept.read_bytes(), type=list[CycleReport])
    assert (report.cycles, report.left) == (3, [])


def test_a_process_a_port_and_a_file_that_are_left_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cluster._MARK, "a-mark")
    (tmp_path / "forgotten").touch()
    program = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        port = int(process.stdout.readline())
        left = list(cluster._left(port, tmp_path))
        process.communicate("\n")

    assert [each.split()[0] for each in left] == ["process", "port", "file"]
    assert f"process {process.pid}:" in left[0]
