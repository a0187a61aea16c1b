"""The target of the start of a run notes the first request of each process."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

from bench.first_requests import first_requests

CLIENT = """
import sys, urllib.request, http.client
client = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
for line in sys.stdin:
    client.request("GET", "/small.txt")
    print(client.getresponse().read().decode().strip(), flush=True)
"""


def _ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_the_first_request_of_each_process_is_noted_once() -> None:
    with first_requests() as target:
        command = [sys.executable, "-c", CLIENT, str(target.port)]
        processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
        ]
        assert not target.has_begun
        first_s = time.monotonic()
        assert _ask(processes[0]) == "ok\n"
        between_s = time.monotonic()
        assert [_ask(process) for process in (processes[1], processes[0])] == ["ok\n", "ok\n"]

        found = target.by_process()
        for process in processes:
            process.communicate()

    assert set(found) == {process.pid for process in processes}
    assert first_s <= found[processes[0].pid].steady_s <= between_s <= found[processes[1].pid].steady_s
    assert abs(found[processes[0].pid].wall_ms / 1000 - time.time()) < 60


def test_a_request_in_parts_is_answered_once() -> None:
    with first_requests() as target, socket.create_connection(("127.0.0.1", target.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r")
        client.sendall(b"\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answers = b""
        while answers.count(b"ok\n") < 2:
            answers += client.recv(4096)

    assert answers.count(b"HTTP/1.1 200 OK") == 2
