"""How one call looks: its phases after each other, each as long as it took."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from ...cli.common import printable
from ..report.words import one_line, size_text, time_text
from .ping_call import Answer

_BAR = 48
_COLOURS = {"dns": "magenta", "connect": "blue", "tls": "cyan", "send": "yellow", "wait": "green", "receive": "red"}


def show_answer(answer: Answer, console: Console, *, headers: bool, body: bool) -> None:
    """For people."""
    result = answer.result
    console.print(Text(one_line(answer.asked, 500), style="bold"), soft_wrap=True)
    sizes = f"{size_text(result.received)} received, {size_text(result.sent)} sent, {time_text(result.elapsed)}"
    console.print(Text(one_line(answer.said), style="red" if answer.refused else "green").append(f"; {sizes}", "none"))
    width = min(_BAR, console.width - 24)
    before, total = 0.0, sum(answer.phases.values()) or 1.0
    for name, took in answer.phases.items():
        line = Text(f"  {name:<8}{time_text(took):>9}  ")
        if width > 4:
            first, last = round(width * before / total), round(width * (before + took) / total)
            line.append(" " * min(first, width - 1)).append("█" * max(1, last - first), style=_COLOURS[name])
        console.print(line, no_wrap=True, overflow="crop")
        before += took
    if headers and answer.headers:
        console.print()
        for name, value in answer.headers:
            console.print(Text(f"{printable(name)}: ", style="cyan").append(printable(value), "none"), soft_wrap=True)
    if body and answer.content:
        console.print()
        for each in answer.content.decode(errors="replace").splitlines():
            console.print(Text(printable(each)), soft_wrap=True)


def answer_data(answer: Answer, *, body: bool) -> dict[str, Any]:
    """For programs."""
    result = answer.result
    data = {
        "asked": answer.asked,
        "status": result.status or None,
        "said": answer.said,
        "ok": result.ok,
        "elapsed_s": result.elapsed,
        "phases_s": answer.phases,
        "sent": result.sent,
        "received": result.received,
        "headers": [list(each) for each in answer.headers],
    }
    if body:
        data["body"] = answer.content.decode(errors="replace")
    return data
