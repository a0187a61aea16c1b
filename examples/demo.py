"""`make demo`: a few hundred jobs that end in every possible way, on SQLite, in a temporary folder.

Two real workers run them. One is killed in the middle of its jobs; one is frozen past its lease and comes back with a
stale claim. At the end every job is compared with what is expected of it. Exit code 1 if anything differs.

- `demo_tasks.py`: the app and its tasks
- `demo_jobs.py`: the jobs that are submitted, and the expected end of each
- `demo_run.py`: submit, start workers, cancel, kill one, freeze one
- `demo_checks.py`: compares the results, and checks the store
- `demo_workers.py`, `demo_view.py`: the worker processes, and the terminal
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

#: all times are shorter than the defaults, so that the demo takes less than a minute
SETTINGS = {
    "heartbeat": "400ms",
    "lease": "2s",
    "sweep": "250ms",
    "poll": "200ms",
    "grace": "2s",
    "concurrency": "8",
    "retries": "3",
    "backoff_base": "200ms",
    "crash_budget": "5",
}


def prepare(folder: Path) -> None:
    """Set the store and the settings for this program and its workers, without settings from the environment. Only the
    key that seals the audit trail stays."""
    for name in [name for name in os.environ if name.startswith("MAINSTAY_") and name != "MAINSTAY_AUDIT_KEY"]:
        del os.environ[name]
    os.environ["MAINSTAY_STORE"] = f"sqlite:///{folder / 'jobs.db'}"
    os.environ |= {f"MAINSTAY_{name.upper()}": value for name, value in SETTINGS.items()}


def listen() -> None:
    """Stop on SIGTERM and SIGHUP as on Ctrl-C, and on Ctrl-C even if the shell that started us ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))


def run(folder: Path, *, keep: bool) -> int:
    """Run the demo in a folder; returns the exit code."""
    prepare(folder)
    try:
        from demo_run import run_demo  # noqa: PLC0415 - the app looks for its store when it is imported

        return asyncio.run(run_demo(folder, keep=keep))
    except KeyboardInterrupt:
        print("\nstopped; no process is left running")
        return 130


def main() -> int:
    """Choose a folder, and remove it at the end."""
    parser = argparse.ArgumentParser(description="Run a few hundred jobs that end in every possible way.")
    parser.add_argument("--keep", action="store_true", help="keep the folder, to inspect it afterwards")
    parser.add_argument("--folder", type=Path, help="where to work (default: a new temporary folder); it is kept")
    given = parser.parse_args()
    if given.folder is not None and (given.folder / "jobs.db").exists():
        parser.error(f"{given.folder} contains a jobs.db already; choose another folder")
    folder = (given.folder or Path(tempfile.mkdtemp(prefix="mainstay-demo-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    keep = given.keep or given.folder is not None
    code = 1
    try:
        listen()
        code = run(folder, keep=keep)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        elif code:
            print(f"the database and the logs of the workers are in {folder}\nremove it with: rm -r {folder}")
    return code


if __name__ == "__main__":
    sys.exit(main())
