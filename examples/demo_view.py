"""The output of the demo: bars in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from mainstay.lifecycle import JOB

if TYPE_CHECKING:
    from demo_run import DemoState

BAR = 44
_COLOURS = {
    "scheduled": "blue",
    "pending": "cyan",
    "running": "yellow",
    "cancelling": "magenta",
    "failed": "red",
    "timed_out": "red",
    "quarantined": "bright_red",
    "succeeded": "green",
    "cancelled": "magenta",
    "skipped": "grey50",
}


class Screen:
    """Prints a line for each step with `log`; in a terminal, bars below it show the status."""

    def __init__(self, demo: DemoState) -> None:
        self.console = Console(highlight=False)
        self.demo = demo
        self.began = time.monotonic()
        self._plain_at = 0.0
        self._live = Live(console=self.console, get_renderable=self._bars, refresh_per_second=12, transient=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def log(self, what: str, style: str = "") -> None:
        """Print one line, with the time since the start."""
        line = Table.grid(padding=(0, 1))
        line.add_column(style="dim", no_wrap=True, width=6, justify="right")
        line.add_column(overflow="fold")
        line.add_row(f"{self._elapsed():.1f}s", Text(what, style=style))
        self.console.print(line)

    def tick(self) -> None:
        """Without a terminal, print the counts once a second."""
        if self.console.is_terminal or self._elapsed() < self._plain_at or not any(self.demo.counts.values()):
            return
        self._plain_at = self._elapsed() + 1.0
        self.log(", ".join(f"{name} {n}" for name, n in self.demo.counts.items() if n))

    def title(self, text: str) -> None:
        """The heading of a part."""
        self.console.print()
        self.console.print(Rule(Text(text, style="bold"), align="left", style="dim"))

    def _elapsed(self) -> float:
        return time.monotonic() - self.began

    def _bars(self) -> Group:
        counts = self.demo.counts
        width = max(10, min(BAR, self.console.width - 22))
        total = max(1, sum(counts.values()))
        table = Table.grid(padding=(0, 1))
        table.add_column(width=13, justify="right")
        table.add_column(width=width, no_wrap=True)
        table.add_column(justify="right", width=5)
        for name in JOB.states:
            if name not in _COLOURS and not counts.get(name):
                continue
            n = counts.get(name, 0)
            filled = -(-n * width // total)
            bar = Text("━" * filled, style=_COLOURS.get(name, "white")).append("─" * (width - filled), style="grey23")
            table.add_row(Text(name, style="" if n else "dim"), bar, Text(str(n), style="bold" if n else "dim"))
        workers = Text("workers ", style="dim", justify="left")
        for name, state in self.demo.workers.states.items():
            dot, style = {"dead": ("✗", "red"), "frozen": ("◌", "yellow")}.get(state, ("●", "green"))
            workers.append(f"  {dot} ", style=style).append(name, style="strike dim" if state == "dead" else "")
        return Group(Text(), table, Text("      ").append_text(workers), Text())


def summary(rows: Sequence[tuple[str, str, bool]]) -> Table:
    """The table at the end; a row is (jobs, result, whether that is as expected)."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("jobs", overflow="fold")
    table.add_column("result", overflow="fold")
    table.add_column("")
    for title, found, fine in rows:
        mark = Text("ok", style="green") if fine else Text("NO", style="bold red")
        colour = _COLOURS.get(found.rpartition(" ")[2], "")
        table.add_row(title, Text(found, style=colour if fine else "bold red"), mark)
    return table


def sentences(title: str, lines: Sequence[str]) -> Table:
    """One section of an explanation."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, width=9)
    table.add_column(overflow="fold")
    for n, sentence in enumerate(lines):
        table.add_row("" if n else title, Text(sentence))
    return table
