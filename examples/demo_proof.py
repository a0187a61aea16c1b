"""The end of the demo: what became of everybody, and how that is proven."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import apsw
from demo_fates import FATES, HAUNTED, VICTIM
from demo_screen import sentences, summary
from demo_stage import Stage
from rich.text import Text

from mainstay.control.check import check
from mainstay.control.explain import explained
from mainstay.model import Job
from mainstay.stores import open_store


async def tell_fates(stage: Stage) -> None:
    """Judge every fate: how many jobs there are, their states, and the proof of each."""
    stage.screen.title("what became of them")
    rows = []
    for fate in FATES:
        jobs = await stage.jobs(fate.tag)
        fine = len(jobs) == fate.jobs and all(job.status == fate.expected and fate.proof(job) for job in jobs)
        if not fine:
            stage.wrong.append(f"not as expected: {fate.title}")
        found = Counter(job.status for job in jobs)
        met = f"{found.pop(fate.expected, 0)} of {fate.jobs} {fate.expected}"
        rows.append((fate.title, ", ".join([met, *(f"{n} {status}" for status, n in found.items())]), fine))
    stage.screen.console.print(summary(rows))


async def tell_stories(stage: Stage) -> None:
    """The two jobs that lived through most, in sentences: what `mainstay jobs explain` says."""
    for tag in (VICTIM, HAUNTED):
        job = await stage.job(tag)
        stage.screen.title(f"the story of {job.name}")
        stage.screen.console.print(Text("as `mainstay jobs explain` tells it:", style="dim"))
        told = await explained(stage.store, job.id)
        for section in told.sections:
            said = [stage.named(sentence) for sentence in section.sentences]
            stage.screen.console.print(sentences(section.title, said))


async def prove(stage: Stage) -> None:
    """Check the store, then check a copy in which somebody rewrote an event."""
    stage.screen.title("can you prove it?")
    say = stage.screen.console.print
    report = await check(stage.store)
    verdict = Text("clean", style="green") if report.clean else Text("NOT clean", style="bold red")
    say(Text("check: ").append_text(verdict).append(f", {report.checked} jobs and the event chain of each"))
    stage.wrong += [f"check: {found.job_id} {found.message}" for found in report.violations]
    victim = await stage.job(VICTIM)
    crash = next(event for event in await stage.control.jobs.events(victim.id) if event.to == "timed_out")
    say(Text(f"now event {crash.seq} of {victim.name} is rewritten in a copy, to hide that its worker was lost:"))
    forged = stage.folder / "forged.db"
    _forge(Path(stage.store.url.removeprefix("sqlite:///")), forged, victim, crash.seq)
    copy = await open_store(f"sqlite:///{forged}")
    try:
        found = (await check(copy)).violations
    finally:
        await copy.close()
    for each in found:
        say(Text("check: ").append(f"{each.code}: {each.message}", style="red"))
    if [each.job_id for each in found] != [victim.id]:
        stage.wrong.append("the check did not find exactly the forged event")


def _forge(source: Path, copy: Path, job: Job, seq: int) -> None:
    """A copy of the database in which one event reads better than it was."""
    database = apsw.Connection(str(source))
    database.execute("VACUUM INTO ?", (str(copy),))
    database.close()
    database = apsw.Connection(str(copy))
    database.execute("UPDATE events SET reason = 'a planned pause' WHERE job_id = ? AND seq = ?", (job.id, seq))
    database.close()
