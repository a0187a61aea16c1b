"""Numbers of load tests as people read them: those of `shown`, and more that only reports need."""

from __future__ import annotations

from ...words import counted
from ..stats import shown
from ..stats.shown import digits, size_text

NONE = "–"

__all__ = ["NONE", "change_text", "counted", "digits", "one_line", "rate_text", "share_text", "size_text", "time_text"]


def time_text(value_s: float | None) -> str:
    """A measured time; a dash if nothing was measured.

    >>> time_text(0.2134), time_text(None)
    ('213 ms', '–')
    """
    return NONE if value_s is None else shown.time_text(value_s)


def rate_text(value: float | None) -> str:
    """A number per second.

    >>> rate_text(74999.6), rate_text(0.25)
    ('75,000/s', '0.25/s')
    """
    return NONE if value is None else f"{digits(value)}/s"


def share_text(part: float, whole: float) -> str:
    """A share in per cent. A share above zero is never shown as 0 %, and one below all never as 100 %.

    >>> share_text(1, 3), share_text(0, 9), share_text(1, 10_000_000), share_text(99_999_999, 100_000_000)
    ('33.3 %', '0 %', '< 0.001 %', '> 99.999 %')
    """
    if whole <= 0:
        return NONE
    share = part / whole
    if 0 < share < 0.00001:
        return "< 0.001 %"
    return "> 99.999 %" if 0.99999 < share < 1 else shown.share_text(share)


def change_text(change: float | None) -> str:
    """A change in per cent.

    >>> change_text(0.123), change_text(-0.5), change_text(0.0001), change_text(3.0), change_text(None)
    ('+12.3 %', '-50 %', '0 %', '+300 %', 'new')
    """
    if change is None:
        return "new"
    percent = change * 100
    if abs(percent) < 0.05:
        return "0 %"
    sign = "+" if percent > 0 else "-"
    return f"{sign}{digits(round(abs(percent), 1))} %"


def one_line(text: str, most: int = 300) -> str:
    r"""Text from a target or a user: on one line, cut if it is long, without control characters for the terminal.

    >>> one_line("no answer\nafter all", most=12), one_line("refused\x1b[2J")
    ('no answer a…', 'refused\\x1b[2J')
    """
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in line)
    return line if len(line) <= most else line[: most - 1] + "…"
