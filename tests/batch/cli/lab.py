"""A small study, and the command run on it as a person does: from a folder, with real workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from mainstay.cli import app

STUDY = """
import asyncio
import json
from pathlib import Path

from mainstay import App, Outputs

app = App("sqlite:///jobs.db")


def score(runs: list) -> dict:
    return {"mean": sum(run.json()["peak"] for run in runs) / len(runs)}


def best(sets: list) -> dict:
    return {"best": max(one.json()["mean"] for one in sets)}


@app.batch(outputs={"result": "result.json"}, aggregate=score, overall=best, retries=0)
def simulate(params: dict, seed: int, out: Outputs) -> None:
    if params["beta"] > 0.4 and seed > 0 and Path("trouble").exists():
        raise ValueError(f"seed {seed} does not settle")
    out.save("result", json.dumps({"peak": params["beta"] * (seed + 1)}).encode())


@app.batch(outputs=["late.txt"])
async def waits(params: dict, out: Outputs) -> None:
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    out.save("late.txt", b"done")


@app.task
async def greet() -> str:
    return "hello"
"""
#: two sets of beta x two of gamma x three seeds; with the aggregations 12 + 4 + 1 outputs
GRID = ("--param", "beta=0.2,0.5", "--param", "gamma=0.1:0.2:0.1", "--seeds", "3")
EXPECTED = 17


class Lab:
    """A folder with a study in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sir.py").write_text(STUDY, encoding="utf-8")

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'jobs.db'}"

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "COLUMNS": "100"}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """In a process of its own, as a shell does."""
        command = [sys.executable, "-m", "mainstay", *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.environ, capture_output=True, text=True, encoding="utf-8", check=False
        )

    def study(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The grid, with workers of its own."""
        return self.run("batch", "run", "sir.py", "simulate", *GRID, "--workers", "1", *words)

    def command(self, *words: str, columns: int = 100) -> Result:
        """What needs the store alone is run here: that is quicker."""
        env = {"MAINSTAY_STORE": self.url, "COLUMNS": str(columns)}
        return CliRunner().invoke(app, list(words), catch_exceptions=False, env=env)

    def json(self, *words: str, code: int = 0) -> Any:
        done = self.command(*words, "--json")
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    def spoil(self) -> None:
        """From now on units fail: two seeds of each of two sets."""
        (self.folder / "trouble").touch()

    def mend(self) -> None:
        (self.folder / "trouble").unlink(missing_ok=True)

    def let_go(self) -> None:
        """End the units of the study that waits."""
        (self.folder / "go").touch()

    def outputs(self) -> list[Path]:
        """The results of simulations."""
        return sorted((self.folder / "mainstay-outputs").rglob("result.json"))
