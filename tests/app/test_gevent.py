"""Jobs are submitted from a program whose threads gevent has replaced by greenlets, as under `gunicorn -k gevent`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.adapters import ADAPTERS

PROGRAM = """
from gevent import monkey

monkey.patch_all()

import json
import sys

import gevent
from gevent.pool import Pool

from mainstay import App

apps = [App(url) for url in sys.argv[1:]]
tasks = [app.task(name="greet")(lambda number=0: number) for app in apps]
turns = 0


def turn():
    global turns
    while True:
        turns += 1
        gevent.sleep(0)


others = gevent.spawn(turn)
ids = Pool(20).map(lambda n: tasks[n % len(tasks)].submit_sync(n).id, range(100))
states = Pool(20).map(lambda n: tasks[0].submit_sync(n).job_sync().status, range(20))
others.kill()
for app in apps:
    app.close_sync()
print(json.dumps([len(set(ids)), sorted(set(states)), turns > 0]))
"""


def _run(folder: Path, *urls: str) -> object:
    program = folder / "green_program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), *urls], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
def test_every_greenlet_submits_and_others_go_on_meanwhile(store: str, tmp_path: Path) -> None:
    """Two apps at once: each has a loop of its own."""
    pytest.importorskip("gevent")
    [adapter] = [adapter for adapter in ADAPTERS if adapter.name == store]
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()

    assert _run(tmp_path, *(adapter.at(folder) for folder in folders)) == [100, ["pending"], True]
