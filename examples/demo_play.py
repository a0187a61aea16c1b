"""The whole demo, from the first job to the last proof. Import it when the environment names the store."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import demo_acts as acts
import demo_proof as proof
from demo_fates import VICTIM
from demo_stage import Stage
from demo_tasks import app
from rich.text import Text

from mainstay.clock import duration_text
from mainstay.model import Settings

PATIENCE_S = 60


async def play(folder: Path, *, keep: bool) -> int:
    """Play it in a folder; the exit code. Nobody is left running, however it ends."""
    async with app:
        stage = Stage(folder)
        try:
            await _tell(stage, keep=keep)
        except TimeoutError:
            stage.wrong.append(f"not done after {PATIENCE_S} s")
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever is impatient now would leave somebody running
            stage.workers.end()
    for each in stage.wrong:
        stage.screen.console.print(Text(each, style="bold red"))
    if stage.wrong and not keep:
        stage.screen.console.print("--keep keeps the database and the logs of the workers, to look into")
    return 1 if stage.wrong else 0


async def _tell(stage: Stage, *, keep: bool) -> None:
    head = Text("Mainstay", style="bold").append(f"  {stage.store.url}", style="dim not bold")
    stage.screen.console.print(head, soft_wrap=True)
    lease, usual = (duration_text(settings.lease_s) for settings in (app.settings, Settings()))
    hurry = f"everything is quicker than in earnest: the lease is {lease} instead of {usual}, and so on"
    stage.screen.console.print(Text(hurry, style="dim"))
    with stage.screen:
        async with asyncio.timeout(PATIENCE_S):
            await _act(stage)
    await proof.tell_fates(stage)
    await proof.tell_stories(stage)
    await proof.prove(stage)
    await tell_next(stage, keep=keep)


async def _act(stage: Stage) -> None:
    watching = asyncio.create_task(stage.watch())
    try:
        await acts.submit(stage)
        await acts.start(stage)
        await acts.cancel(stage)
        await acts.kill_one(stage)
        await acts.freeze_one(stage)
        await stage.until(stage.all_settled)
        stage.screen.tell("every job is settled, but the one that waits for a worker that knows it", "bold")
        badly = await asyncio.to_thread(stage.workers.stop)
    finally:
        watching.cancel()
    stage.wrong += [f"{name} ended badly; see {stage.folder / name}.log" for name in badly]
    stage.screen.tell("the workers were told to stop (SIGTERM), and have")


async def tell_next(stage: Stage, *, keep: bool) -> None:
    """What to type next."""
    stage.screen.title("try next")
    here = Path(__file__).parent
    if not keep:
        lines = [f"{_shortest(sys.executable)} {_shortest(str(here / 'demo.py'))} --keep"]
    else:
        command = "mainstay" if shutil.which("mainstay") else _shortest(str(Path(sys.executable).with_name("mainstay")))
        victim = await stage.job(VICTIM)
        lines = [
            f"export MAINSTAY_STORE={stage.store.url}",
            f"{command} stats",
            f"{command} jobs list --status quarantined",
            f"{command} jobs explain {victim.id}",
            f"{command} check",
            f"{command} check -s sqlite:///{stage.folder / 'forged.db'}",
            f"PYTHONPATH={_shortest(str(here))} {command} worker demo_tasks:app",
        ]
    for line in lines:
        stage.screen.console.print(Text("  " + line, style="cyan"), soft_wrap=True)
    last = (
        f"remove it all with: rm -r {stage.folder}" if keep else "plays it again, and keeps the database to look into"
    )
    stage.screen.console.print(Text(last, style="dim"), soft_wrap=True)


def _shortest(path: str) -> str:
    return min(path, os.path.relpath(path), key=len)
