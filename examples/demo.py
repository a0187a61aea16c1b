"""`make demo`: a few hundred jobs meet every fate, on SQLite, in a temporary folder.

Two real workers run them. One is killed in the middle of its jobs; one is frozen past its lease and comes back as a
ghost. At the end every job is asked what happened to it, and the answer is proven. Exit code 1 if anything is not as
expected.

`demo_tasks.py` is the app, `demo_fates.py` the cast, `demo_acts.py` what happens, `demo_proof.py` how it is judged;
`demo_workers.py` starts and kills, `demo_screen.py` is what you see, `demo_stage.py` is what they share, and
`demo_play.py` puts them in order.
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

#: everything is quicker than in earnest, so that the story fits into a few seconds
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
    """Name the store and the settings for this program and its workers. Settings from outside would change the
    story; the key that seals the audit trail must be everybody's."""
    for name in [name for name in os.environ if name.startswith("MAINSTAY_") and name != "MAINSTAY_AUDIT_KEY"]:
        del os.environ[name]
    os.environ["MAINSTAY_STORE"] = f"sqlite:///{folder / 'jobs.db'}"
    os.environ |= {f"MAINSTAY_{name.upper()}": value for name, value in SETTINGS.items()}


def listen() -> None:
    """Be stopped by other signals as by Ctrl-C, and by Ctrl-C even where a shell that started us said otherwise."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))


def run(folder: Path, *, keep: bool) -> int:
    """Play the demo in a folder; the exit code."""
    prepare(folder)
    try:
        from demo_play import play  # noqa: PLC0415 - the app looks for its store when it is imported

        return asyncio.run(play(folder, keep=keep))
    except KeyboardInterrupt:
        print("\nstopped; nobody is left running")
        return 130


def main() -> int:
    """Choose a folder, and clear it up at the end, whatever that is."""
    parser = argparse.ArgumentParser(description="A few hundred jobs meet every fate.")
    parser.add_argument("--keep", action="store_true", help="keep the folder, to look into afterwards")
    parser.add_argument("--folder", type=Path, help="where to work (default: a new temporary folder); it is kept")
    given = parser.parse_args()
    if given.folder is not None and (given.folder / "jobs.db").exists():
        parser.error(f"{given.folder} holds a jobs.db already; choose another folder")
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
            print(f"what there is, logs of the workers included, is in {folder}\nremove it with: rm -r {folder}")
    return code


if __name__ == "__main__":
    sys.exit(main())
