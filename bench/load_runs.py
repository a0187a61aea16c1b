"""One run of a load generator: what it says it did, what the target says it did, and what that cost. Linux only.

What counts is from soon after the first request to the end of the command: the requests that the target answered,
beside the processor time of the generator. So the start of an interpreter is not in it, and what is put off to the end
is (one generator works out all its statistics there). The whole command is measured beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from servers import Nginx

from .environments import ROOT
from .peers.load.catalog import PATHS, LoadSystem
from .peers.load.work import KILOBYTE
from .stands import cpu_s, family, peak_mb

HERE = ROOT / "bench" / "peers" / "load"
_LOG_LINES = 12
_WARM = 1 / 6
"""Part of the seconds of a run after which it counts."""
_RATED = 3 / 4
"""Part after which the rate is taken."""
_LOOK_S = 0.02
_PATIENCE_S = 60.0
_UNTRUE = 0.02


class RunFailed(Exception):
    """A generator did not do what it was told."""


class Ran(msgspec.Struct, kw_only=True):
    """One run."""

    requests: int
    """As the generator says."""
    failed: int
    served: int
    """As the target says."""
    connections: int
    """The most that were open at the target at once."""
    took_s: float
    start_s: float
    """From the command to the first request that the target answered."""
    cpu_s: float
    """Of the whole command, with all its processes."""
    rate: float
    """Requests a second, before the end."""
    warm_served: int
    """From soon after the first request to the end, as the target says."""
    warm_generator_s: float
    """Processor time from then on, of the one process that makes the requests."""
    warm_all_s: float
    """And of all processes of the command."""
    peak_mb: float
    """The most memory that one of its processes held."""

    @property
    def per_generator_s(self) -> float:
        """Requests for a second of processor time of the process that makes them."""
        return self.warm_served / self.warm_generator_s

    @property
    def per_all_s(self) -> float:
        """The same, of all its processes."""
        return self.warm_served / self.warm_all_s

    @property
    def per_command_s(self) -> float:
        """The same over the whole command, with its start."""
        return self.requests / self.cpu_s


class _Mark(msgspec.Struct, frozen=True):
    at_s: float
    served: int
    cpu_s: dict[int, float]
    """By process."""
    peak_mb: float


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What every generator is told."""

    scenario: str
    connections: int
    seconds: float


def run(system: LoadSystem, programs: dict[str, str], target: Nginx, folder: Path, job: Job) -> Ran:
    """`programs`: the words `bin` and `program` of its command."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "counted.json"
    out.unlink(missing_ok=True)
    command, env = told(system, programs, target, out, job)
    used_s, count, began = children_s(), AnswerCount(target), time.monotonic()
    with started(command, env, folder) as process:
        first_s = first_request(process, count)
        early = _mark(process, count, first_s + job.seconds * _WARM)
        late = _mark(process, count, first_s + job.seconds * _RATED)
        used = dict(late.cpu_s) if late else {}
        wait_until(process, lambda: _note(used))
        ended, took_s = process.poll() is not None, time.monotonic() - began
    said = (folder / "said").read_text(errors="replace")
    if process.returncode != 0 or early is None or late is None:
        how = f"ended with {process.returncode}" if ended else f"had not ended after {took_s:.0f} s"
        raise RunFailed(f"{system.title} {how}, and {count.served():,} requests were answered:\n{tail(said)}")
    try:
        requests, failed = system.counted(said, out)
    except (OSError, ValueError, KeyError) as error:
        raise RunFailed(f"{system.title} left no counts ({error!r}):\n{tail(said)}") from error
    command_s, served = children_s() - used_s, count.served()
    warm_all_s = command_s - sum(early.cpu_s.values())
    # a single process is known to the end, and one of several as it was last seen, a moment before
    warm_s = [used[pid] - early.cpu_s.get(pid, 0.0) for pid in used] if len(used) > 1 else [warm_all_s]
    ran = Ran(
        requests=requests,
        failed=failed,
        served=served,
        connections=count.connections,
        took_s=took_s,
        start_s=first_s - began,
        cpu_s=command_s,
        rate=(late.served - early.served) / (late.at_s - early.at_s),
        warm_served=served - early.served,
        warm_generator_s=max(warm_s),
        warm_all_s=warm_all_s,
        peak_mb=late.peak_mb,
    )
    # what is under way at the end is answered, and not counted by most
    if abs(ran.served - ran.requests) > _UNTRUE * ran.served + 2 * job.connections:
        raise RunFailed(f"{system.title} says {ran.requests:,} requests, and its target {ran.served:,}")
    return ran


def told(
    system: LoadSystem, programs: dict[str, str], target: Nginx, out: Path, job: Job
) -> tuple[list[str], dict[str, str]]:
    """Its command and its environment."""
    base = target.tls_url("") if job.scenario == "tls" else target.url("")
    body = out.with_name("kilobyte")
    body.write_text(json.dumps(KILOBYTE))
    words = {
        **programs,
        **msgspec.to_builtins(job),
        "here": HERE,
        "base": base,
        "ca": target.certificate,
        "url": base + PATHS.get(job.scenario, ""),
        "kilobyte": body,
        # for what counts its seconds from the start of its interpreter, and is given a TLS context for each user
        "longer": job.seconds + 4,
        "out": out,
        "stem": out.with_suffix(""),
    }
    env = {
        # an interpreter that may not keep what it compiled would show in the start, of some and not of others
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPATH": str(ROOT),
        "BENCH_SCENARIO": job.scenario,
        "BENCH_BASE": base,
        "BENCH_CONNECTIONS": str(job.connections),
        "BENCH_SECONDS": str(job.seconds),
        "BENCH_OUT": str(out),
        **system.env,
    }
    parts = (*system.command, *system.more.get(job.scenario, ()))
    return [part.format(**words) for part in parts], env


class AnswerCount:
    """What a target has answered since, without our own looks at it."""

    def __init__(self, target: Nginx) -> None:
        self._target = target
        self._before = target.status().requests
        self._looks = 0
        self.connections = 0
        """The most that were seen open at once."""

    def served(self) -> int:
        self._looks += 1
        seen = self._target.status()
        self.connections = max(self.connections, seen.connections - 1)
        return seen.requests - self._before - self._looks


@contextlib.contextmanager
def started(command: list[str], env: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Whatever happens, none of its processes is left; what it said is in a file then."""
    process = subprocess.Popen(
        command,
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        # Hyperscale aborts if it is to write to a file
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_allow_files,  # noqa: PLW1509  # two system calls
    )
    assert process.stdout is not None
    with (folder / "said").open("wb") as log:
        reader = threading.Thread(target=shutil.copyfileobj, args=(process.stdout, log))
        reader.start()
        try:
            yield process
        finally:
            for pid in family({process.pid}):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            reader.join()
            process.stdout.close()


def _allow_files() -> None:
    """As many as the machine lets us: a connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def first_request(process: subprocess.Popen[bytes], count: AnswerCount) -> float:
    wait_until(process, lambda: count.served() > 0)
    return time.monotonic()


def _mark(process: subprocess.Popen[bytes], count: AnswerCount, when_s: float) -> _Mark | None:
    """None if it ended before."""
    if wait_until(process, lambda: time.monotonic() >= when_s):
        return None
    pids = family({process.pid})
    return _Mark(
        time.monotonic(),
        count.served(),
        {pid: cpu_s(pid) for pid in pids},
        max((peak_mb(pid) or 0.0 for pid in pids), default=0.0),
    )


def _note(used: dict[int, float]) -> bool:
    """The latest of each process. Never enough: a wait for the end calls it."""
    used.update({pid: max(before_s, cpu_s(pid)) for pid, before_s in used.items()})
    return False


def wait_until(process: subprocess.Popen[bytes], reached: Callable[[], bool]) -> bool:
    """Until something is reached, or the process has ended: which is what it answers."""
    deadline = time.monotonic() + _PATIENCE_S
    while process.poll() is None:
        if reached():
            return False
        if time.monotonic() > deadline:
            return True
        time.sleep(_LOOK_S)
    return True


def children_s() -> float:
    """Processor time of all commands that ended, with their children; the target runs on."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def tail(said: str) -> str:
    return "\n".join(said.splitlines()[-_LOG_LINES:])
