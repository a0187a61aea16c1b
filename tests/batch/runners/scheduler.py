"""A small batch scheduler: a spool folder, and `submit NAME LINE`, `status ID`, `find NAME`, `cancel ID`.

Jobs run at once, unless there is a file `hold` in the spool. `lose` in it makes every job unknown.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

RUN = """
import pathlib, subprocess, sys
job = pathlib.Path(sys.argv[1])
child = subprocess.Popen(["sh", "-c", sys.argv[2]])
code = child.wait()
(job / "exit.new").write_text(str(code))
(job / "exit.new").rename(job / "exit")
"""


class Spool:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def submit(self, name: str, line: str) -> str:
        number = 100 + len(self.jobs())
        job = self.folder / str(number)
        job.mkdir()
        (job / "name").write_text(name)
        if not (self.folder / "hold").exists():
            with (job / "log").open("wb") as log:
                run = subprocess.Popen(
                    [sys.executable, "-c", RUN, str(job), line],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            (job / "pid").write_text(str(run.pid))
        return str(number)

    def status(self, number: str) -> str:
        job = self.folder / number
        if not job.exists() or (self.folder / "lose").exists():
            return ""
        if (job / "cancelled").exists():
            return "CANCELLED by 0|0:15"
        if (job / "exit").exists():
            code = (job / "exit").read_text()
            return f"COMPLETED|{code}:0" if code == "0" else f"FAILED|{code}:0"
        return "RUNNING|0:0" if (job / "pid").exists() else "PENDING|0:0"

    def find(self, name: str) -> str:
        return "\n".join(job.name for job in self.jobs() if (job / "name").read_text() == name)

    def cancel(self, number: str) -> str:
        job = self.folder / number
        if (self.folder / "refuse").exists():
            sys.exit("the controller is away")
        if (job / "pid").exists():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int((job / "pid").read_text()), signal.SIGKILL)
        (job / "cancelled").touch()
        return ""

    def jobs(self) -> list[Path]:
        return sorted(path for path in self.folder.iterdir() if path.is_dir())

    def log(self) -> list[str]:
        """What was asked of it."""
        asked = self.folder / "asked"
        return [json.loads(line)[0] for line in asked.read_text().splitlines()] if asked.exists() else []


def main(folder: str, what: str, *words: str) -> None:
    spool = Spool(Path(folder))
    with (spool.folder / "asked").open("a") as asked:
        asked.write(json.dumps([what, *words]) + "\n")
    said = getattr(spool, what)(*words)
    if said:
        print(said)


if __name__ == "__main__":
    main(*sys.argv[1:])
