"""Numbers of load tests as text: three significant digits, and a suitable unit."""

from __future__ import annotations

_SIZES = ("B", "KB", "MB", "GB", "TB")


def time_text(seconds: float) -> str:
    """A time in s, ms, µs or ns.

    >>> time_text(0.2131), time_text(1.5), time_text(0.000085), time_text(125), time_text(0), time_text(4.51e-8)
    ('213 ms', '1.5 s', '85 µs', '125 s', '0 s', '45.1 ns')
    """
    size = abs(seconds)
    if size == 0 or size >= 0.9995:
        return f"{digits(seconds)} s"
    if size >= 0.0009995:
        return f"{digits(seconds * 1e3)} ms"
    return f"{digits(seconds * 1e6)} µs" if size >= 9.995e-7 else f"{digits(seconds * 1e9)} ns"


def share_text(part: float) -> str:
    """A share, in percent.

    >>> share_text(0.0041), share_text(1.0), share_text(0.99999)
    ('0.41 %', '100 %', '99.999 %')
    """
    percent = part * 100
    # 99.999 % is not 100 %: the difference matters there
    return f"{percent:.3f} %" if 99.95 <= percent < 100 else f"{digits(percent)} %"


def size_text(count: float) -> str:
    """A number of bytes.

    >>> size_text(512), size_text(3_200_000)
    ('512 B', '3.2 MB')
    """
    for unit in _SIZES[:-1]:
        if abs(count) < 999.5:
            return f"{digits(count)} {unit}"
        count /= 1000
    return f"{digits(count)} {_SIZES[-1]}"


def digits(number: float) -> str:
    """A number with three significant digits, or all digits before the point.

    >>> digits(1204.4), digits(12.345), digits(0.04), digits(7), digits(1234567)
    ('1,204', '12.3', '0.04', '7', '1,234,567')
    """
    if abs(number) >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.3g}"
