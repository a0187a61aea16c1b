"""How jobs look: as a table, as a story, and as data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
from rich import box
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..clock import duration_text
from ..control.json_view import PRIVATE, stored_value
from ..lifecycle import Event, table_of, time_text
from ..model import AWAITS_MS, ErrorInfo, Job, Options, Session
from ..stores import RefusedWrite
from ..words import age
from .common import coloured, coloured_status, printable, shortened

#: events shown on a screen; all are in --json
_SHOWN = 200
#: where lines have no limit, a rule still needs one
_RULE = 120
#: widths of a terminal from which on a list has more to show
_WHOLE_ID, _ONE_LINE, _WITH_WHY, _WITH_QUEUE = 56, 70, 85, 120
#: a session's id: digits, after the name of its worker where that is known
_SESSION = re.compile(r"(?:(?P<worker>[A-Za-z0-9._-]+)\.)?(?<![0-9A-Za-z-])[0-9a-f]{32}(?![0-9A-Za-z-])")
_UNNAMED = "session"


def show_list(jobs: Sequence[Job], cursor: str | None, now_ms: int, console: Console) -> None:
    """A table as wide as the terminal: what fits, in order of use."""
    if not jobs:
        console.print("no jobs match" if cursor is None else "no jobs match in this stretch")
    else:
        show_rows(jobs, now_ms, console)
    if cursor is not None:
        console.print(Text(f"more: add --cursor {cursor}", style="dim"), soft_wrap=True)


def show_rows(jobs: Sequence[Job], now_ms: int, console: Console) -> None:
    """The table alone."""
    console.print(_list(jobs, now_ms, console.width))


def _list(jobs: Sequence[Job], now_ms: int, width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    # an id on one line can be copied; where there is no room even for that, everything folds
    narrow = width < _ONE_LINE
    table.add_column("id", overflow="fold", no_wrap=width >= _WHOLE_ID, style="dim")
    table.add_column("status", overflow="fold", no_wrap=not narrow)
    table.add_column(
        "name", overflow="fold" if narrow else "ellipsis", no_wrap=not narrow, max_width=max(16, width // 8)
    )
    table.add_column("age", no_wrap=True, justify="right")
    if width >= _WITH_QUEUE:
        table.add_column("queue", overflow="ellipsis", no_wrap=True, max_width=max(12, width // 12))
        table.add_column("runs", no_wrap=True, justify="right")
    if width >= _WITH_WHY:
        table.add_column("why", overflow="fold", min_width=10, style="dim")
    for job in jobs:
        # all units of a batch have the same name
        cells = [
            Text(job.id),
            coloured_status(job.status, job.parent),
            Text(printable(job.unit or job.name)),
            Text(age(now_ms - job.created_ms)),
        ]
        if width >= _WITH_QUEUE:
            cells += [Text(printable(job.queue)), Text(str(job.starts))]
        if width >= _WITH_WHY:
            cells.append(Text(_named(job.reason or "", {})))
        table.add_row(*cells)
    return table


def show_job(
    job: Job | None,
    events: Sequence[Event],
    refusals: Sequence[RefusedWrite],
    sessions: Mapping[str, Session],
    now_ms: int,
    console: Console,
    *,
    payload: bool,
) -> None:
    """Everything about one job, for a person."""
    if job is None:
        console.print(Text("deleted; what is left is its tombstone", style="bold"))
    else:
        _show_row(job, sessions, now_ms, console)
        if payload:
            _show_private(job, console)
    console.print()
    console.print(Rule(Text("story", style="bold"), align="left", style="dim"), width=min(console.width, _RULE))
    if job is not None and job.trimmed_seq:
        console.print(Text(f"events 1 to {job.trimmed_seq} were trimmed", style="dim"))
    if len(events) > _SHOWN:
        console.print(Text(f"{len(events) - _SHOWN} earlier events; --json shows all", style="dim"))
    console.print(story_table(events[-_SHOWN:], refusals, sessions))


def _show_row(job: Job, sessions: Mapping[str, Session], now_ms: int, console: Console) -> None:
    head = Text(printable(job.name), style="bold").append(" ").append_text(coloured_status(job.status, job.parent))
    if table_of(job.parent).get(job.status) is None:
        head.append(" (written by a newer version; this one leaves it alone)", style="yellow")
    console.print(head)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in _facts(job, sessions, now_ms):
        if value:
            grid.add_row(name, value if isinstance(value, Text) else printable(value))
    console.print(grid)
    if job.error is not None and job.error.traceback:
        for line in job.error.traceback.rstrip().splitlines():
            console.print(Text("  " + printable(line), style="dim"), soft_wrap=True)


def _facts(job: Job, sessions: Mapping[str, Session], now_ms: int) -> list[tuple[str, str | Text | None]]:
    facts: list[tuple[str, str | Text | None]] = [
        ("id", job.id),
        ("why", job.reason),
        ("error", _error(job.error)),
        ("queue", f"{job.queue}, priority {job.priority}"),
        ("kind", job.kind if job.kind != "task" else None),
        ("unit", f"{job.unit} of {job.parent}" if job.parent else None),
        ("group", job.group),
        ("submitted", f"{time_text(job.created_ms)}, {age(now_ms - job.created_ms)} ago"),
        ("due", time_text(job.due_ms) if job.due_ms not in (job.created_ms, AWAITS_MS) else None),
        ("started", None if job.started_ms is None else time_text(job.started_ms)),
        ("settled", None if job.settled_ms is None else time_text(job.settled_ms)),
        ("held by", f"{_named(job.session, sessions)} ({job.session})" if job.session else None),
        ("progress", _progress(job)),
        ("counted", _counters(job)),
        ("key", job.key),
        ("unique key", job.unique_key),
        ("concurrency", job.concurrency_key),
        ("tags", ", ".join(job.options.tags)),
        ("metadata", ", ".join(f"{key}={value}" for key, value in job.options.metadata.items())),
        ("policy", _policy(job.options)),
    ]
    return facts


def _error(error: ErrorInfo | None) -> str | None:
    if error is None:
        return None
    # "error" is what an exception without a code of its own has
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
    of = f" of {progress.total:g}" if progress.total is not None else ""
    said = f": {progress.message}" if progress.message else ""
    when = f" at {time_text(job.progress_ms)}" if job.progress_ms else ""
    return f"{progress.done:g}{of}{said}{when}"


def _show_private(job: Job, console: Console) -> None:
    for name in PRIVATE:
        stored = getattr(job, name)
        if stored is None:
            continue
        shown = msgspec.json.encode(stored_value(stored), enc_hook=str).decode()
        console.print(Text(f"{name}: ", style="dim").append(printable(shown), style="not dim"), soft_wrap=True)


def story_table(events: Sequence[Event], refusals: Sequence[RefusedWrite], sessions: Mapping[str, Session]) -> Table:
    """Events as a table; times count from the first of them."""
    start_ms = events[0].at_ms if events else 0
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", justify="right", no_wrap=True)
    table.add_column(style="dim", justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(style="cyan", overflow="fold")
    table.add_column(style="dim", overflow="fold")
    lines: list[tuple[int, int, str, Text, str, str]] = []
    for place, event in enumerate(events):
        lines.append((event.at_ms, place, str(event.seq), _move(event), event.actor, event.reason or ""))
    for refusal in refusals:
        why = f"refused: its claim (token {refusal.token}) had been lost"
        lines.append((refusal.at_ms, len(events), "-", Text(refusal.wanted, style="red"), refusal.session, why))
    for at_ms, _, seq, move, actor, why in sorted(lines, key=lambda line: line[:2]):
        table.add_row(seq, _since(at_ms - start_ms), move, _named(actor, sessions), _named(why, sessions))
    return table


def _move(event: Event) -> Text:
    if event.flag == "note":
        return Text("note", style="dim")
    move = Text() if event.source is None else Text(printable(event.source), style="dim").append(" → ")
    move.append_text(coloured(event.to))
    return move.append(f" [{event.flag}]", style="yellow") if event.flag else move


def _named(text: str, sessions: Mapping[str, Session]) -> str:
    """Sessions by the name of their worker: it says more than the random digits of their ids."""

    def short(found: re.Match[str]) -> str:
        session = sessions.get(found[0])
        worker = session.worker if session is not None else found["worker"]
        return worker if worker and worker != _UNNAMED else found[0]

    return shortened(printable(_SESSION.sub(short, text)))


def _since(ms: int) -> str:
    return f"+{ms / 1000:.3f}s" if ms < 60_000 else f"+{duration_text(ms // 1000)}"
