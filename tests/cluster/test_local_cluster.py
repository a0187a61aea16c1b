"""The files of a local cluster."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from mainstay.cluster.local_cluster import LocalCluster, LocalClusterOptions
from mainstay.cluster.local_cluster_file import (
    FILE,
    ClusterFolder,
    LocalClusterFile,
    RunningProcess,
    read_cluster_file,
)
from mainstay.errors import InvalidInput


async def test_a_second_cluster_in_a_folder_is_refused_and_the_first_is_still_found(tmp_path: Path) -> None:
    running = LocalClusterFile(
        cluster="local",
        url="nats://operator:a@127.0.0.1:1/local",
        node_url="nats://node:a@127.0.0.1:1/local",
        store="sqlite:///jobs.db",
        processes=[RunningProcess(role="bus", name="nats", pid=os.getpid())],
    )
    (tmp_path / FILE).write_bytes(msgspec.json.encode(running))
    first = ClusterFolder(tmp_path)
    first.hold()
    second = LocalCluster(LocalClusterOptions(folder=tmp_path, target="x:app"))

    with pytest.raises(InvalidInput, match="running already"):
        await second.start()
    await second.stop()

    assert read_cluster_file(tmp_path) == running
    first.release()
