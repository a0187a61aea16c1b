"""Every load generator: its command, what it needs, and where it says how many requests it made.

Words in braces are filled in: `{bin}` the environment's programs, `{program}` the path of what is no package, `{here}`
this folder, `{base}` where the target is and `{ca}` its certificate, `{url}` what is asked for, `{kilobyte}` a file
with what is posted, `{connections}` and `{seconds}`, or `{longer}` for what takes long to start, `{out}` a file for its
counts, `{stem}` the same without its ending. What a script must know is in its environment; see `work`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

US = "mainstay-load"
SCENARIOS = {
    "get": "small GET, keep-alive",
    "post": "POST of 1 KB JSON",
    "steps": "three steps, each checked",
    "tls": "small GET over TLS",
}
PATHS = {"get": "/small.txt", "post": "/json", "tls": "/small.txt"}
"""What those ask for that are told a URL, and no script."""


class Counted(NamedTuple):
    """What a generator says it did."""

    requests: int
    failed: int


class LoadSystem(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the report."""

    name: str
    title: str
    setting: str
    lacks: str = ""
    """What it does not do of what Mainstay does, in a few words."""
    package: str = ""
    """In its environment; "" for a program of the machine."""
    requirements: str | None = None
    """Its environment; None is ours."""
    program: str = ""
    """As `servers.programs` knows it."""
    command: tuple[str, ...]
    more: dict[str, tuple[str, ...]] = {}
    """By scenario: what is added to the command."""
    env: dict[str, str] = {}
    scriptable: bool = True
    """Takes a script, and so the three steps."""
    counted: Callable[[str, Path], Counted]
    """From what it printed and from its file."""

    @property
    def scenarios(self) -> list[str]:
        return [name for name in SCENARIOS if self.scriptable or name != "steps"]


def _of_wrk(said: str, _out: Path) -> Counted:
    """
    >>> _of_wrk("  7 requests in 1.00s\\n  Socket errors: connect 0, read 1, write 0, timeout 1", Path())
    Counted(requests=7, failed=2)
    """
    failed = sum(map(int, re.findall(r"Non-2xx or 3xx responses: (\d+)", said)))
    for errors in re.findall(r"Socket errors: (.*)", said):
        failed += sum(map(int, re.findall(r"\d+", errors)))
    return Counted(int(_found(r"(\d+) requests in", said)), failed)


def _of_hey(said: str, _out: Path) -> Counted:
    """
    >>> _of_hey("  [200]\\t9 responses\\n  [502]\\t1 responses\\n\\nError distribution:\\n  [2]\\tGet: refused", Path())
    Counted(requests=10, failed=3)
    """
    answers = [(int(status), int(n)) for status, n in re.findall(r"\[(\d+)\]\t(\d+) responses", said)]
    _, _, errors = said.partition("Error distribution:")
    broken = sum(map(int, re.findall(r"^\s+\[(\d+)\]\t", errors, re.MULTILINE)))
    return Counted(sum(n for _, n in answers), broken + sum(n for status, n in answers if status >= 400))


def _of_k6(_said: str, out: Path) -> Counted:
    metrics = json.loads(out.read_text())["metrics"]
    checks = metrics.get("checks", {"fails": 0})
    # of a rate that says how often something failed, to pass is to have failed
    return Counted(metrics["http_reqs"]["count"], metrics["http_req_failed"]["passes"] + checks["fails"])


def _of_locust(_said: str, out: Path) -> Counted:
    rows = json.loads(out.read_text())
    return Counted(sum(row["num_requests"] for row in rows), sum(row["num_failures"] for row in rows))


def _of_summary(_said: str, out: Path) -> Counted:
    told = json.loads(out.read_text())
    broken = sum(check["failed"] for check in told.get("checks", []))
    return Counted(told["requests"], told["failed"] + broken)


def _found(pattern: str, said: str) -> str:
    if not (found := re.search(pattern, said)):
        raise ValueError(f"it did not say how many requests it made:\n{said[-500:]}")
    return found[1]


LOAD_PEERS = (
    LoadSystem(
        name="wrk",
        title="wrk",
        setting="one thread",
        lacks="no script here (Lua it has), no open model, no thresholds; written in C",
        program="wrk",
        command=("{program}", "-t1", "-c{connections}", "-d{seconds}s", "{url}"),
        more={"post": ("-s", "{here}/post.lua")},
        scriptable=False,
        counted=_of_wrk,
    ),
    LoadSystem(
        name="hey",
        title="hey",
        setting="-cpus 1",
        lacks="no script, no open model, no thresholds; written in Go",
        program="hey",
        command=("{program}", "-cpus", "1", "-c", "{connections}", "-z", "{seconds}s"),
        more={
            "get": ("{url}",),
            "tls": ("{url}",),
            "post": ("-m", "POST", "-T", "application/json", "-D", "{kilobyte}", "{url}"),
        },
        scriptable=False,
        counted=_of_hey,
    ),
    LoadSystem(
        name="k6",
        title="k6",
        setting="GOMAXPROCS=1, bodies discarded where nothing looks at them",
        lacks="keeps every value; thresholds over the whole run only",
        package="k6",
        requirements="k6",
        command=("{bin}/k6", "run", "--quiet", "--no-usage-report", "--summary-export", "{out}", "{here}/k6_load.js"),
        env={"GOMAXPROCS": "1"},
        counted=_of_k6,
    ),
    LoadSystem(
        name="locust",
        title="Locust",
        setting="FastHttpUser, one process, no wait time",
        lacks="no open model, no thresholds; percentiles of two digits",
        package="locust",
        requirements="locust",
        command=(
            *(
                "{bin}/locust",
                "-f",
                "{here}/locust_load.py",
                "--headless",
                "--only-summary",
                "--exit-code-on-error",
                "0",
            ),
            *("-u", "{connections}", "-r", "{connections}", "-t", "{longer}s", "--json-file", "{stem}"),
        ),
        counted=_of_locust,
    ),
    LoadSystem(
        name="hyperscale",
        title="Hyperscale",
        setting="its workflow runner in one process, on uvloop; its command line does not start",
        lacks="no open model, no thresholds, no users; keeps every response to the end",
        package="hyperscale",
        requirements="hyperscale",
        command=("{bin}/python", "-m", "bench.peers.load.hyperscale_load"),
        counted=_of_summary,
    ),
)

LOAD_OURS = (
    LoadSystem(
        name=US,
        title="Mainstay",
        setting="`mainstay load run --processes 1`, all statistics on, certificates verified",
        package="mainstay",
        command=(
            *("{bin}/mainstay", "load", "run", "--processes", "1", "--ui", "none", "--json", "{out}"),
            *("--base-url", "{base}", "--vus", "{connections}", "--duration", "{seconds}s"),
            "{here}/mainstay_load.py",
        ),
        more={
            "get": ("Get",),
            "post": ("Post",),
            "steps": ("Steps",),
            "tls": ("Get", "--ca", "{ca}"),
            "users": ("Users",),
        },
        counted=_of_summary,
    ),
)
