"""Shows one call: its phases one after the other, each as long as it took."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from ...cli import printable
from ..report.words import one_line, size_text, time_text
from .ping_call import PingReply

_BAR = 48
_COLOURS = {"dns": "magenta", "connect": "blue", "tls": "cyan", "send": "yellow", "wait": "green", "receive": "red"}


def show_reply(reply: PingReply, console: Console, *, headers: bool, body: bool) -> None:
    """For people."""
    result = reply.result
    console.print(Text(one_line(reply.request_line, 500), style="bold"), soft_wrap=True)
    sizes = f"{size_text(result.received)} received, {size_text(result.sent)} sent, {time_text(result.elapsed)}"
    console.print(
        Text(one_line(reply.status_line), style="red" if reply.refused else "green").append(f"; {sizes}", "none")
    )
    width = min(_BAR, console.width - 24)
    before, total = 0.0, sum(reply.phases.values()) or 1.0
    for name, took in reply.phases.items():
        line = Text(f"  {name:<8}{time_text(took):>9}  ")
        if width > 4:
            first, last = round(width * before / total), round(width * (before + took) / total)
            line.append(" " * min(first, width - 1)).append("█" * max(1, last - first), style=_COLOURS[name])
        console.print(line, no_wrap=True, overflow="crop")
        before += took
    if headers and reply.headers:
        console.print()
        for name, value in reply.headers:
            console.print(Text(f"{printable(name)}: ", style="cyan").append(printable(value), "none"), soft_wrap=True)
    if body and reply.content:
        console.print()
        for each in reply.content.decode(errors="replace").splitlines():
            console.print(Text(printable(each)), soft_wrap=True)


def reply_data(reply: PingReply, *, body: bool) -> dict[str, Any]:
    """For programs."""
    result = reply.result
    data = {
        "asked": reply.request_line,
        "status": result.status or None,
        "said": reply.status_line,
        "ok": result.ok,
        "elapsed_s": result.elapsed,
        "phases_s": reply.phases,
        "sent": result.sent,
        "received": result.received,
        "headers": [list(each) for each in reply.headers],
    }
    if body:
        data["body"] = reply.content.decode(errors="replace")
    return data
