"""The demo from the first job to the last check. Import it after the environment names the store."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import demo_checks as checks
import demo_steps as steps
from demo_jobs import KILLED
from demo_state import DemoState
from demo_tasks import app
from rich.text import Text

from mainstay.clock import duration_text
from mainstay.model import Settings

PATIENCE_S = 60


async def run_demo(folder: Path, *, keep: bool) -> int:
    """Run it in a folder; returns the exit code. No worker is left running, however it ends."""
    async with app:
        demo = DemoState(folder)
        try:
            await _run_and_report(demo, keep=keep)
        except TimeoutError:
            demo.problems.append(f"not done after {PATIENCE_S} s")
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # another Ctrl-C would leave a worker running
            demo.workers.end()
    for each in demo.problems:
        demo.screen.console.print(Text(each, style="bold red"))
    if demo.problems and not keep:
        demo.screen.console.print("--keep keeps the database and the logs of the workers")
    return 1 if demo.problems else 0


async def _run_and_report(demo: DemoState, *, keep: bool) -> None:
    head = Text("Mainstay", style="bold").append(f"  {demo.store.url}", style="dim not bold")
    demo.screen.console.print(head, soft_wrap=True)
    lease, usual = (duration_text(settings.lease_s) for settings in (app.settings, Settings()))
    note = f"all times are shorter than the defaults: the lease is {lease} instead of {usual}, and so on"
    demo.screen.console.print(Text(note, style="dim"))
    with demo.screen:
        async with asyncio.timeout(PATIENCE_S):
            await _run_steps(demo)
    await checks.show_results(demo)
    await checks.show_stories(demo)
    await checks.check_store(demo)
    await show_next_commands(demo, keep=keep)


async def _run_steps(demo: DemoState) -> None:
    watching = asyncio.create_task(demo.watch())
    try:
        await steps.submit(demo)
        await steps.start(demo)
        await steps.cancel(demo)
        await steps.kill_one(demo)
        await steps.freeze_one(demo)
        await demo.until(demo.all_settled)
        demo.screen.log("every job is settled, except the one whose task no worker has", "bold")
        failed = await asyncio.to_thread(demo.workers.stop)
    finally:
        watching.cancel()
    demo.problems += [f"{name} did not stop cleanly; see {demo.folder / name}.log" for name in failed]
    demo.screen.log("the workers got SIGTERM and have stopped")


async def show_next_commands(demo: DemoState, *, keep: bool) -> None:
    """Commands to try next."""
    demo.screen.title("try next")
    here = Path(__file__).parent
    if not keep:
        lines = [f"{_shortest(sys.executable)} {_shortest(str(here / 'demo.py'))} --keep"]
    else:
        command = "mainstay" if shutil.which("mainstay") else _shortest(str(Path(sys.executable).with_name("mainstay")))
        job = await demo.job(KILLED)
        lines = [
            f"export MAINSTAY_STORE={demo.store.url}",
            f"{command} stats",
            f"{command} jobs list --status quarantined",
            f"{command} jobs explain {job.id}",
            f"{command} check",
            f"{command} check -s sqlite:///{demo.folder / 'forged.db'}",
            f"PYTHONPATH={_shortest(str(here))} {command} worker demo_tasks:app",
        ]
    for line in lines:
        demo.screen.console.print(Text("  " + line, style="cyan"), soft_wrap=True)
    last = f"remove it all with: rm -r {demo.folder}" if keep else "runs it again, and keeps the database to inspect"
    demo.screen.console.print(Text(last, style="dim"), soft_wrap=True)


def _shortest(path: str) -> str:
    return min(path, os.path.relpath(path), key=len)
