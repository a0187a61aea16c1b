"""The processor time of a tree of processes counts what has ended, too."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from bench.process_trees import owners_of_ports, roles_of, use_of

BURN = "import time\nwhile time.process_time() < 0.3: pass\n"
#: it starts a child that works and ends, in a session of its own, and then waits
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURN!r}], check=True, start_new_session=True)
print("done", flush=True)
sys.stdin.read()
"""


def _parent(program: str = PARENT) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )


def test_the_time_of_a_child_that_has_ended_is_counted() -> None:
    with _parent() as parent:
        before = use_of([parent.pid])
        assert parent.stdout is not None
        parent.stdout.readline()
        after = use_of([parent.pid])
        parent.communicate()
        ended = use_of([parent.pid])

    assert after.total_s - before.total_s >= 0.25
    assert set(after.own_s) == {parent.pid}
    assert after.own_s[parent.pid] < after.total_s
    # waited for by this process, which has its time from then on
    assert ended.own_s == {}
    assert ended.total_s >= after.total_s - 0.05


def test_a_process_has_the_role_of_its_root_or_of_its_program() -> None:
    program = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], start_new_session=True)
print(child.pid, flush=True)
sys.stdin.read()
"""
    with _parent(program) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        found = roles_of({"node": [parent.pid]}, {"-c import sys": "generator"})
        parent.communicate()

    assert found == {parent.pid: "node", child: "generator"}


def test_a_connection_is_that_of_the_process_that_opened_it() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()[:2]) as client,
    ):
        port = client.getsockname()[1]

        assert owners_of_ports([port]) == {port: os.getpid()}
