"""How many processors a process may use, by what the system says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mainstay.worker.processors import available


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.usefixtures("many")
def test_the_affinity_counts(tmp_path: Path) -> None:
    assert available(tmp_path) == 8


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("quota", "processors"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("odd", 8)],
)
def test_the_quota_of_its_control_group_counts(tmp_path: Path, quota: str, processors: int) -> None:
    root = _write(tmp_path, {"proc/self/cgroup": "0::/work/job\n", "sys/fs/cgroup/work/job/cpu.max": quota})
    assert available(root) == processors


@pytest.mark.usefixtures("many")
def test_the_tightest_quota_of_the_groups_around_it_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/work/job\n",
        "sys/fs/cgroup/work/job/cpu.max": "600000 100000",
        "sys/fs/cgroup/work/cpu.max": "300000 100000",
    }
    assert available(_write(tmp_path, files)) == 3


@pytest.mark.usefixtures("many")
def test_in_a_container_the_group_is_mounted_at_the_top(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/docker/abc\n", "sys/fs/cgroup/cpu.max": "400000 100000"}
    assert available(_write(tmp_path, files)) == 4


@pytest.mark.usefixtures("many")
def test_the_first_version_of_control_groups_counts_as_well(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:cpu,cpuacct:/work\n3:memory:/work\n",
        "sys/fs/cgroup/cpu,cpuacct/work/cpu.cfs_quota_us": "250000",
        "sys/fs/cgroup/cpu,cpuacct/work/cpu.cfs_period_us": "100000",
    }
    assert available(_write(tmp_path, files)) == 3
