"""The end of the demo: compare every result with what is expected, and check the store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from demo_jobs import EXPECTATIONS, FROZEN, KILLED
from demo_view import sentences, summary
from rich.text import Text

from mainstay.control.check import check
from mainstay.control.explain import explained
from mainstay.model import Job
from mainstay.stores import open_store

if TYPE_CHECKING:
    from demo_run import DemoState


async def show_results(demo: DemoState) -> None:
    """Compare the jobs of each tag: their number, their status, and what else must be true."""
    demo.screen.title("results")
    rows = []
    for expectation in EXPECTATIONS:
        jobs = await demo.jobs(expectation.tag)
        fine = len(jobs) == expectation.jobs and all(
            job.status == expectation.expected and expectation.proof(job) for job in jobs
        )
        if not fine:
            demo.problems.append(f"not as expected: {expectation.title}")
        found = Counter(job.status for job in jobs)
        met = f"{found.pop(expectation.expected, 0)} of {expectation.jobs} {expectation.expected}"
        rows.append((expectation.title, ", ".join([met, *(f"{n} {status}" for status, n in found.items())]), fine))
    demo.screen.console.print(summary(rows))


async def show_stories(demo: DemoState) -> None:
    """Print what `mainstay jobs explain` says about the jobs of the killed and of the frozen worker."""
    for tag in (KILLED, FROZEN):
        job = await demo.job(tag)
        demo.screen.title(f"the story of {job.name}")
        demo.screen.console.print(Text("from `mainstay jobs explain`:", style="dim"))
        explanation = await explained(demo.store, job.id)
        for section in explanation.sections:
            lines = [demo.named(sentence) for sentence in section.sentences]
            demo.screen.console.print(sentences(section.title, lines))


async def check_store(demo: DemoState) -> None:
    """Check the store, then a copy of it with a forged event."""
    demo.screen.title("can you prove it?")
    say = demo.screen.console.print
    report = await check(demo.store)
    verdict = Text("clean", style="green") if report.clean else Text("NOT clean", style="bold red")
    say(Text("check: ").append_text(verdict).append(f", {report.checked} jobs and the event chain of each"))
    demo.problems += [f"check: {found.job_id} {found.message}" for found in report.violations]
    job = await demo.job(KILLED)
    crash = next(event for event in await demo.control.jobs.events(job.id) if event.to == "timed_out")
    say(Text(f"now event {crash.seq} of {job.name} is rewritten in a copy, to hide that its worker was lost:"))
    forged = demo.folder / "forged.db"
    _forge(Path(demo.store.url.removeprefix("sqlite:///")), forged, job, crash.seq)
    copy = await open_store(f"sqlite:///{forged}")
    try:
        found = (await check(copy)).violations
    finally:
        await copy.close()
    for each in found:
        say(Text("check: ").append(f"{each.code}: {each.message}", style="red"))
    if [each.job_id for each in found] != [job.id]:
        demo.problems.append("the check did not find exactly the forged event")


def _forge(source: Path, copy: Path, job: Job, seq: int) -> None:
    """Copy the database and change the reason of one event."""
    database = apsw.Connection(str(source))
    database.execute("VACUUM INTO ?", (str(copy),))
    database.close()
    database = apsw.Connection(str(copy))
    database.execute("UPDATE events SET reason = 'a planned pause' WHERE job_id = ? AND seq = ?", (job.id, seq))
    database.close()
