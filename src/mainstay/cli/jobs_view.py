"""Jobs on the terminal: as a table, as a page about one job, and as a story."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..clock import duration_text
from ..control import PRIVATE_FIELDS, stored_value
from ..lifecycle import Event, table_of, time_text
from ..model import PLACE_MS, ErrorInfo, Job, Options, Session
from ..stores import RefusedWrite
from ..words import SessionNames, age
from .common import coloured, coloured_status, printable, shortened
from .tables import Column, facts, table

#: events shown; all are in --json
_SHOWN = 200
#: the longest rule, where lines have no limit
_RULE = 120
#: screen widths from which on a list shows more
_WHOLE_ID, _ONE_LINE, _WITH_WHY, _WITH_QUEUE = 56, 70, 85, 120


def show_list(jobs: Sequence[Job], cursor: str | None, now_ms: int, console: Console) -> None:
    """A page of jobs, and the cursor of the next page."""
    if jobs:
        show_rows(jobs, now_ms, console)
    else:
        console.print("no jobs match" if cursor is None else "no jobs match on this page")
    if cursor is not None:
        console.print(Text(f"more: add --cursor {cursor}", style="dim"), soft_wrap=True)


def show_rows(jobs: Sequence[Job], now_ms: int, console: Console) -> None:
    """A table of jobs, with the columns that fit on the screen."""
    width = console.width
    # an id on one line can be copied; on a screen too narrow for it, every column folds
    one_line = width >= _ONE_LINE
    names = SessionNames(())
    column = Column[Job]
    columns = (
        column("id", lambda job: job.id, no_wrap=width >= _WHOLE_ID, style="dim"),
        column("status", lambda job: coloured_status(job.status, job.parent), no_wrap=one_line),
        column(
            "name",
            lambda job: job.unit or job.name,  # all units of a batch have the same name
            overflow="ellipsis" if one_line else "fold",
            no_wrap=one_line,
            max_width=max(16, width // 8),
        ),
        column("age", lambda job: age(now_ms - job.created_ms), right=True),
        column(
            "queue",
            lambda job: job.queue,
            overflow="ellipsis",
            no_wrap=True,
            max_width=max(12, width // 12),
            min_screen=_WITH_QUEUE,
        ),
        column("runs", lambda job: str(job.starts), right=True, min_screen=_WITH_QUEUE),
        column("why", lambda job: _short(job.reason or "", names), min_width=10, style="dim", min_screen=_WITH_WHY),
    )
    console.print(table(columns, jobs, screen_width=width))


def show_job(
    job: Job | None,
    events: Sequence[Event],
    refusals: Sequence[RefusedWrite],
    sessions: Iterable[Session],
    now_ms: int,
    console: Console,
    *,
    payload: bool,
) -> None:
    """Everything about one job."""
    names = SessionNames(sessions)
    if job is None:
        console.print(Text("deleted; its tombstone is left", style="bold"))
    else:
        _show_row(job, names, now_ms, console)
        if payload:
            _show_private(job, console)
    console.print()
    console.print(Rule(Text("story", style="bold"), align="left", style="dim"), width=min(console.width, _RULE))
    if job is not None and job.trimmed_seq:
        console.print(Text(f"events 1 to {job.trimmed_seq} were trimmed", style="dim"))
    if len(events) > _SHOWN:
        console.print(Text(f"{len(events) - _SHOWN} earlier events; --json shows all", style="dim"))
    console.print(story_table(events[-_SHOWN:], refusals, names))


def _show_row(job: Job, names: SessionNames, now_ms: int, console: Console) -> None:
    head = Text(printable(job.name), style="bold").append(" ").append_text(coloured_status(job.status, job.parent))
    if table_of(job.parent).get(job.status) is None:
        head.append(" (written by a newer version; this one leaves it alone)", style="yellow")
    console.print(head)
    console.print(facts(_facts(job, names, now_ms)))
    if job.error is not None and job.error.traceback:
        for line in job.error.traceback.rstrip().splitlines():
            console.print(Text("  " + printable(line), style="dim"), soft_wrap=True)


def _facts(job: Job, names: SessionNames, now_ms: int) -> list[tuple[str, str | None]]:
    return [
        ("id", job.id),
        ("why", job.reason),
        ("error", _error(job.error)),
        ("queue", f"{job.queue}, priority {job.priority}"),
        ("kind", job.kind if job.kind != "task" else None),
        ("unit", f"{job.unit} of {job.parent}" if job.parent else None),
        ("group", job.group),
        ("submitted", f"{time_text(job.created_ms)}, {age(now_ms - job.created_ms)} ago"),
        ("due", time_text(job.due_ms) if job.due_ms != job.created_ms and job.due_ms < PLACE_MS else None),
        ("started", None if job.started_ms is None else time_text(job.started_ms)),
        ("settled", None if job.settled_ms is None else time_text(job.settled_ms)),
        ("held by", f"{_short(job.session, names)} ({job.session})" if job.session else None),
        ("progress", _progress(job)),
        ("counted", _counters(job)),
        ("key", job.key),
        ("unique key", job.unique_key),
        ("concurrency", job.concurrency_key),
        ("tags", ", ".join(job.options.tags)),
        ("metadata", ", ".join(f"{key}={value}" for key, value in job.options.metadata.items())),
        ("policy", _policy(job.options)),
    ]


def _error(error: ErrorInfo | None) -> str | None:
    if error is None:
        return None
    # exceptions without a code of their own have "error"
    code = f" ({error.code})" if error.code != "error" else ""
    return f"{error.type}: {error.message}{code}"


def _counters(job: Job) -> str:
    counters = {
        "claims": job.token,
        "starts": job.starts,
        "failures": job.failures,
        "crashes": job.crashes,
        "releases": job.releases,
        "losses": job.losses,
    }
    return ", ".join(f"{name} {n}" for name, n in counters.items())


def _policy(options: Options) -> str:
    retry = options.retry
    waits = f"{retry.kind}, base {duration_text(retry.base_s)}, cap {duration_text(retry.cap_s)}"
    parts = [
        f"retries {retry.retries} ({waits}{'' if retry.jitter else ', no jitter'})",
        f"crash budget {retry.crash_budget}",
        f"run timeout {duration_text(options.run_timeout_s)}" if options.run_timeout_s else "no run timeout",
    ]
    if options.stall_timeout_s:
        parts.append(f"stall timeout {duration_text(options.stall_timeout_s)} then {options.on_stall}")
    if options.start_by_ms:
        parts.append(f"start by {time_text(options.start_by_ms)}")
    parts.append(f"grace {duration_text(options.grace_s)}")
    if options.keep_s:
        parts.append(f"kept {duration_text(options.keep_s)}")
    return ", ".join(parts)


def _progress(job: Job) -> str | None:
    progress = job.progress
    if progress is None:
        return None
    total = f" of {progress.total:g}" if progress.total is not None else ""
    message = f": {progress.message}" if progress.message else ""
    at = f" at {time_text(job.progress_ms)}" if job.progress_ms else ""
    return f"{progress.done:g}{total}{message}{at}"


def _show_private(job: Job, console: Console) -> None:
    for name in PRIVATE_FIELDS:
        stored = getattr(job, name)
        if stored is None:
            continue
        shown = msgspec.json.encode(stored_value(stored), enc_hook=str).decode()
        console.print(Text(f"{name}: ", style="dim").append(printable(shown), style="not dim"), soft_wrap=True)


def story_table(events: Sequence[Event], refusals: Sequence[RefusedWrite], names: SessionNames) -> Table:
    """Events as a table; times count from the first of them."""
    start_ms = events[0].at_ms if events else 0
    story = Table.grid(padding=(0, 2, 0, 0))
    for _ in ("seq", "time"):
        story.add_column(style="dim", justify="right", no_wrap=True)
    for style in ("", "cyan", "dim"):  # move, actor, reason
        story.add_column(style=style, overflow="fold")
    lines: list[tuple[int, int, str, Text, str, str]] = []
    for place, event in enumerate(events):
        lines.append((event.at_ms, place, str(event.seq), _move(event), event.actor, event.reason or ""))
    for refusal in refusals:
        reason = f"refused: its claim (token {refusal.token}) had been lost"
        lines.append((refusal.at_ms, len(events), "-", Text(refusal.wanted, style="red"), refusal.session, reason))
    for at_ms, _, seq, move, actor, reason in sorted(lines, key=lambda line: line[:2]):
        story.add_row(seq, _since(at_ms - start_ms), move, _short(actor, names), _short(reason, names))
    return story


def _move(event: Event) -> Text:
    if event.flag == "note":
        return Text("note", style="dim")
    move = Text() if event.source is None else Text(printable(event.source), style="dim").append(" → ")
    move.append_text(coloured(event.to))
    return move.append(f" [{event.flag}]", style="yellow") if event.flag else move


def _short(text: str, names: SessionNames) -> str:
    """Text with sessions by the name of their worker."""
    return shortened(printable(names.within(text)))


def _since(ms: int) -> str:
    return f"+{ms / 1000:.3f}s" if ms < 60_000 else f"+{duration_text(ms // 1000)}"
