"""Numbers of load tests as people read them. Three digits that count, and a unit."""

from __future__ import annotations

import math

NONE = "–"
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def digits(value: float) -> str:
    """A number with three digits that count, and no more than are there.

    >>> digits(1234567.8), digits(213.4), digits(3.2119), digits(5), digits(0.0123456), digits(0)
    ('1,234,568', '213', '3.21', '5', '0.0123', '0')
    """
    if not math.isfinite(value):
        return NONE
    if value == int(value) or abs(value) >= 99.95:
        return f"{value:,.0f}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def time_text(value_s: float | None) -> str:
    """A time that was measured.

    >>> time_text(0.2134), time_text(1.5), time_text(0.00000085), time_text(None), time_text(0)
    ('213 ms', '1.50 s', '850 ns', '–', '0 s')
    """
    if value_s is None or not math.isfinite(value_s):
        return NONE
    if value_s == 0:
        return "0 s"
    for size, unit in _TIMES:
        # 0.9996 ms reads "1.00 ms", and not "1,000 µs"
        if abs(value_s) >= size * 0.9995:
            return f"{digits(value_s / size)} {unit}"
    return f"{digits(value_s / 1e-9)} ns"


def rate_text(value: float | None) -> str:
    """How many a second.

    >>> rate_text(74999.6), rate_text(0.25)
    ('75,000/s', '0.250/s')
    """
    return NONE if value is None else f"{digits(value)}/s"


def share_text(part: float, whole: float) -> str:
    """A part in per cent. What is not nothing is never shown as nothing, and what is not all never as all.

    >>> share_text(1, 3), share_text(0, 9), share_text(1, 10_000_000), share_text(99_999_999, 100_000_000)
    ('33.3 %', '0 %', '< 0.001 %', '> 99.99 %')
    """
    if whole <= 0:
        return NONE
    percent = part / whole * 100
    if 0 < percent < 0.001:
        return "< 0.001 %"
    if 99.99 < percent < 100:
        return "> 99.99 %"
    return f"{percent:.2f} %" if 99 < percent < 100 else f"{digits(percent)} %"


def bytes_text(count: float) -> str:
    """How many bytes, in thousands.

    >>> bytes_text(999), bytes_text(1234567)
    ('999 B', '1.23 MB')
    """
    for size, unit in _BYTES:
        if count >= size:
            return f"{digits(count / size)} {unit}"
    return f"{count:,.0f} B"


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


def counted(count: int, one: str, many: str = "") -> str:
    """A count and what is counted.

    >>> counted(1, "request"), counted(1200, "request")
    ('1 request', '1,200 requests')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def one_line(text: str, most: int = 300) -> str:
    r"""Text that a target or a user made: on one line, cut where it is long, without what would change a terminal.

    >>> one_line("no answer\nafter all", most=12), one_line("refused\x1b[2J")
    ('no answer a…', 'refused\\x1b[2J')
    """
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in line)
    return line if len(line) <= most else line[: most - 1] + "…"
