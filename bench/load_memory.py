"""`python -m bench.load_memory`: does a load test of ten minutes keep its memory? Beside the suites, for it takes long.

A hundred users in two processes, who think in between, go through steps that overlap, with checks, a metric and some
errors, against the built-in target: about 800 requests a second, with times all over the histogram. Each process of the
command is looked at every second. It is flat if, after the first fifth of the time, the most that a process is resident
with grows by less than 5 %; what a line through the rest comes to in an hour is told beside it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

import servers

from .load_accuracy import target
from .load_runs import started
from .peers.load.catalog import LOAD_OURS
from .runs import Run, begun
from .stands import family, rss_mb

KEPT = Path(__file__).resolve().parent / "results" / "load_memory.json"
SETTLED = 1 / 5
GROWTH = 0.05
PROCESSES = 2
WORKFLOW = """
from mainstay.load import URL, Check, HTTPResponse, Metric, Trend, Workflow, step

class Shop(Workflow):
    think = "200ms-400ms"

    @step()
    async def login(self, url: URL = "/login") -> HTTPResponse:
        return await self.client.http.post(url, json={"user": f"user {self.vu.number}"})

    @step("login")
    async def logged_in(self, login: HTTPResponse) -> Check:
        return Check(login.status == 200, "not logged in")

    @step("login")
    async def browse(self, url: URL = "/") -> HTTPResponse:
        return await self.client.http.get(url)

    @step("browse")
    async def size(self, browse: HTTPResponse) -> Metric[Trend]:
        return Metric(float(browse.received))

    @step("browse")
    async def order(self, url: URL = "/?size=2KB") -> HTTPResponse:
        return await self.client.http.get(url)
"""


class Memory(Run, kw_only=True):
    """What a run found, as it is kept."""

    seconds: int
    users: int
    requests: int = 0
    failed: int = 0
    samples: dict[str, list[float]] = msgspec.field(default_factory=dict)
    """By role: megabytes resident, second by second."""

    def growth(self, role: str) -> float:
        """How much more than when it had settled, as a part of that."""
        samples = self.samples[role]
        at = max(1, round(len(samples) * SETTLED))
        return max(samples[at:], default=0.0) / max(samples[:at]) - 1

    def slope(self, role: str) -> float:
        """Megabytes an hour, of the line that fits best once it had settled."""
        samples = self.samples[role][round(len(self.samples[role]) * SETTLED) :]
        middle, mean = (len(samples) - 1) / 2, sum(samples) / max(1, len(samples))
        spread = sum((at - middle) ** 2 for at in range(len(samples)))
        return 3600 * sum((at - middle) * (mb - mean) for at, mb in enumerate(samples)) / spread if spread else 0.0

    @property
    def flat(self) -> bool:
        return bool(self.samples) and all(self.growth(role) < GROWTH for role in self.samples)


def measure(seconds: int, users: int) -> Memory:
    (system,) = LOAD_OURS
    with servers.folder("mainstay-bench-") as folder, target(latency="lognormal 20ms 0.5", errors="1%") as url:
        found = Memory(**begun(folder), seconds=seconds, users=users)
        out, test = folder / "counted.json", folder / "shop.py"
        test.write_text(WORKFLOW)
        command = [str(Path(sys.executable).with_name("mainstay")), "load", "run", "--ui", "none", "--json", str(out)]
        command += ["--processes", str(PROCESSES), "--vus", str(users), "--duration", f"{seconds}s"]
        began = time.monotonic()
        with started([*command, "--base-url", url, str(test)], dict(os.environ), folder) as process:
            _watch(process, found.samples)
        found.took_s = round(time.monotonic() - began, 1)
        if process.returncode != 0:
            raise SystemExit(f"it ended with {process.returncode}:\n{(folder / 'said').read_text()}")
        found.requests, found.failed = system.counted("", out)
    return found


def _watch(process: subprocess.Popen[bytes], samples: dict[str, list[float]]) -> None:
    """Until it has ended."""
    roles = {process.pid: "command"}
    due = time.monotonic()
    while process.poll() is None:
        for pid in sorted(family({process.pid})):
            role = roles.setdefault(pid, f"generator {len(roles)}")
            if resident := rss_mb(pid):
                samples.setdefault(role, []).append(round(resident, 1))
        due += 1.0
        time.sleep(max(0.0, due - time.monotonic()))


def table(found: Memory) -> Table:
    made = Table(title=f"{found.seconds} s, {found.users} users, {found.requests:,} requests: memory, MB")
    for heading in ("", "settled", "in the end", "most", "grown", "an hour"):
        made.add_column(heading)
    for role, samples in found.samples.items():
        settled = max(samples[: max(1, round(len(samples) * SETTLED))])
        made.add_row(
            *(role, f"{settled:.1f}", f"{samples[-1]:.1f}", f"{max(samples):.1f}"),
            *(f"{100 * found.growth(role):+.1f} %", f"{found.slope(role):+.1f}"),
        )
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.load_memory", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--results", type=Path, help="file to keep the JSON in (default: bench/results, if whole)")
    given = parser.parse_args()
    found = measure(given.seconds, given.users)
    console = Console()
    console.print(table(found))
    console.print(f"flat: {'met' if found.flat else 'NOT MET'}")
    if out := given.results or (KEPT if given.seconds >= 600 else None):
        kept = {**msgspec.to_builtins(found), "flat": found.flat}
        out.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
        console.print(f"kept in {os.path.relpath(out)}")
    return 0 if found.flat else 1


if __name__ == "__main__":
    sys.exit(main())
