"""What was answered is on the disk: seen in the system calls of a process, because killing one would not show it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.stores.sqlite.process import Child
from tests.stores.versioned.conformance import counting

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="`strace` is not on this machine; install it")

CALLS = "write,fsync,fdatasync,rename,mkdir"
_CALL = re.compile(r"\d+ +(\w+)\((.*)")


def calls_of_two_updates(url: str, folder: Path) -> list[tuple[str, str]]:
    """The calls and what they were given, in order, from when the store was open until the answer."""
    log = folder / "trace"
    tracer = ["strace", "-f", "-y", "-s", "200", "-e", f"trace={CALLS}", "-o", str(log)]
    child = Child(Path(counting.__file__), url, "deep/visits", 2, wrapper=tracer)
    try:
        assert child.line() == "ready", "strace may not run here"
        assert child.ask() == "2 0 0 0"
    finally:
        child.end()
    found = [(call[1], call[2]) for line in log.read_text().splitlines() if (call := _CALL.match(line))]
    said = [n for n, (name, given) in enumerate(found) if name == "write" and given.startswith("1<")]
    return [call for n, call in enumerate(found) if said[0] < n < said[-1] and n not in said]


@pytest.mark.slow
def test_a_folder_forces_the_value_then_its_name_before_it_answers(tmp_path: Path) -> None:
    found = calls_of_two_updates(f"file://{tmp_path}/values", tmp_path)

    values = str(tmp_path / "values")
    steps = []
    for name, given in found:
        if name == "fsync" and f"<{values}/.new/" in given:
            steps.append("force the value")
        elif name == "fsync" and (at := re.search(r"<(.*)>", given)):
            steps.append(f"force the names in {at[1].removeprefix(values) or '/'}")
        elif name in ("mkdir", "rename"):
            to = re.findall('"(.*?)"', given)[-1]
            steps.append(f"{name} to {to.removeprefix(values)}")
    assert steps == [
        "force the value",
        "mkdir to /deep+",
        "force the names in /",
        "rename to /deep+/visits@",
        "force the names in /deep+",
        "force the value",
        "rename to /deep+/visits@",
        "force the names in /deep+",
    ]


@pytest.mark.slow
def test_an_sqlite_file_forces_its_log_at_every_commit(tmp_path: Path) -> None:
    found = calls_of_two_updates(f"sqlite:///{tmp_path}/values.db", tmp_path)

    forced = [given for name, given in found if name in ("fsync", "fdatasync") and "values.db-wal>" in given]
    assert len(forced) >= 2
