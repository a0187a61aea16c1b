"""Workers of Locust that send no load: each tells its master the same statistics again and again.

They speak the protocol of its workers, with its own code for messages and statistics: ready, spawning, a heartbeat each
second, and statistics each `BENCH_INTERVAL` seconds. All are in this process, each with a connection of its own.
"""

from __future__ import annotations

import os
import random
import resource
import time

import zmq
from locust import __version__, stats
from locust.rpc.protocol import Message

WORKERS = int(os.environ["BENCH_WORKERS"])
INTERVAL_S = float(os.environ["BENCH_INTERVAL"])
REQUESTS = int(os.environ["BENCH_REQUESTS"])
STEPS = os.environ["BENCH_STEPS"].split(",")
MASTER = os.environ["BENCH_MASTER"]


class Reporter:
    """One worker."""

    def __init__(self, context: zmq.Context, number: int) -> None:
        self.name = f"worker-{number}"
        self.state = "ready"
        self.spawned: dict[str, int] = {}
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.IDENTITY, self.name.encode())
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(MASTER)

    def send(self, kind: str, data: object) -> None:
        self.socket.send(Message(kind, data, self.name).serialize(), zmq.NOBLOCK)

    def beat(self) -> None:
        self.send("heartbeat", {"state": self.state, "current_cpu_usage": 50, "current_memory_usage": 1 << 26})

    def report(self, measured: dict[str, object]) -> None:
        count = sum(self.spawned.values())
        self.send("stats", {**measured, "user_classes_count": self.spawned, "user_count": count})

    def read(self) -> None:
        """Obey the master."""
        while self.socket.poll(0):
            message = Message.unserialize(self.socket.recv())
            if message.type == "spawn":
                self.spawned = message.data["user_classes_count"]
                self.state = "running"
                count = sum(self.spawned.values())
                self.send("spawning", None)
                self.send("spawning_complete", {"user_classes_count": self.spawned, "user_count": count})


def measured() -> dict[str, object]:
    """The statistics of an interval."""
    chance, found = random.Random(7), stats.RequestStats()
    for step in STEPS:
        for _ in range(REQUESTS):
            found.log_request("GET", step, chance.lognormvariate(3.0, 0.7), 1024)
    return {
        "stats": found.serialize_stats(),
        "stats_total": found.total.get_stripped_report(),
        "errors": found.serialize_errors(),
    }


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, WORKERS + 10)
    reporters = [Reporter(context, number) for number in range(WORKERS)]
    for reporter in reporters:
        reporter.send("client_ready", __version__)
    statistics = measured()
    # one after the other, as machines that began at different times do
    began_s, turn = time.monotonic(), 0
    while True:
        at_s = began_s + turn * INTERVAL_S / WORKERS
        time.sleep(max(0.0, at_s - time.monotonic()))
        reporter = reporters[turn % WORKERS]
        reporter.read()
        if turn // WORKERS * INTERVAL_S % 1.0 < INTERVAL_S:
            reporter.beat()
        if reporter.state == "running":
            reporter.report(statistics)
        turn += 1


if __name__ == "__main__":
    main()
