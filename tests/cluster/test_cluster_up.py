"""`mainstay cluster up` in a terminal: it keeps its processes running, and leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mainstay.cluster.local_cluster_file import ClusterFolder, read_cluster_file
from mainstay.errors import InvalidInput
from tests.cli.terminal import PseudoTerminal
from tests.cluster.local_clusters import TARGET, until
from tests.cluster.marked_processes import MarkedProcesses

MAINSTAY = [sys.executable, "-m", "mainstay", "cluster"]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MarkedProcesses:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return MarkedProcesses(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def up(folder: Path, **more: str) -> PseudoTerminal:
    # as the leader of a terminal's session, so that Ctrl-C arrives as it does for a person
    command = ["setsid", "--ctty", *MAINSTAY, "up", TARGET, "--managers", "1", "--grace", "2s", "--folder", str(folder)]
    words = [word for name, value in more.items() for word in (f"--{name}", value)]
    return PseudoTerminal([*command, *words], os.environ, size=(200, 50))


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAINSTAY, *words], capture_output=True, text=True, check=False)


def listening_ports() -> set[int]:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return {int(words[1].rpartition(":")[2], 16) for words in map(str.split, lines) if words[3] == "0A"}


@pytest.mark.slow
async def test_killed_processes_are_started_again_and_ctrl_c_ends_all(folder: Path, processes: MarkedProcesses) -> None:
    with up(folder) as terminal:
        terminal.wait_for("is up")
        before = read_cluster_file(folder)
        port = int(re.search(r":(\d+)/", before.url)[1])
        kills = [run("kill", name, "--folder", str(folder)) for name in ("nats", "m1", "n1")]
        for name in ("bus nats", "manager m1", "node n1"):
            terminal.wait_for(f"restarted {name}")
        after = read_cluster_file(folder)
        status = await until(lambda: status_with_a_node(folder))
        second = run("up", "--folder", str(folder))
        listening = port in listening_ports()
        terminal.answer("\x03")
        code = terminal.end()

    assert [each.returncode for each in kills] == [0, 0, 0]
    assert {each.name for each in before.processes} == {each.name for each in after.processes} == {"nats", "m1", "n1"}
    assert not {each.pid for each in before.processes} & {each.pid for each in after.processes}
    assert "1 active of 1" in status
    assert (second.returncode, "a cluster is running already" in second.stderr) == (2, True), second.stderr
    assert (code, terminal.shown.count("Traceback")) == (0, 0), terminal.shown
    assert processes.alive() == {}
    assert listening
    assert port not in listening_ports()
    assert not (folder / "cluster.json").exists()
    assert list((folder.parent / "temporary").iterdir()) == []


async def status_with_a_node(folder: Path) -> str | None:
    text = run("status", "--folder", str(folder)).stdout
    return text if "1 active of 1" in text else None


@pytest.mark.slow
async def test_its_processes_end_with_it_when_it_is_killed_and_its_folder_can_be_used_again(
    folder: Path, processes: MarkedProcesses
) -> None:
    with up(folder) as terminal:
        terminal.wait_for("is up")
        terminal.process.kill()
        terminal.process.wait()
        await until(processes.gone)
    stale = (folder / "cluster.json").exists()
    refused = [run(*words, "--folder", str(folder)) for words in (["status"], ["kill", "m1"])]
    with up(folder, nodes="0") as terminal:
        terminal.wait_for("is up")
        terminal.process.send_signal(signal.SIGTERM)
        code = terminal.end()

    assert stale
    assert [(each.returncode, "no cluster runs in" in each.stderr) for each in refused] == [(2, True)] * 2
    assert code == 0, terminal.shown
    assert processes.alive() == {}
    assert not (folder / "cluster.json").exists()


@pytest.mark.slow
async def test_ctrl_c_while_it_starts_ends_all(folder: Path, processes: MarkedProcesses) -> None:
    with up(folder) as terminal:
        terminal.wait_for("started   bus")
        terminal.answer("\x03")
        code = terminal.end()

    assert (code, terminal.shown.count("Traceback")) == (0, 0), terminal.shown
    assert processes.alive() == {}
    assert not (folder / "cluster.json").exists()


def test_it_names_the_extra_if_the_client_of_the_bus_is_not_installed(folder: Path) -> None:
    hidden = "import sys; sys.modules['nats'] = None; from mainstay.__main__ import main; sys.exit(main())"
    ended = subprocess.run(
        [sys.executable, "-c", hidden, "cluster", "up", "--folder", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 2
    assert "pip install 'mainstay[cluster]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_folder_is_held_by_one_command_at_a_time(tmp_path: Path) -> None:
    first, second = ClusterFolder(tmp_path), ClusterFolder(tmp_path)
    first.hold()

    with pytest.raises(InvalidInput, match="is running already"):
        second.hold()
    first.release()
    second.hold()
    second.release()
