"""Tables and lists of facts, as every command prints them. Stored text in a cell cannot control the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from rich import box
from rich.table import Table
from rich.text import Text

from .common import printable

T = TypeVar("T")


class Column(Generic[T]):
    """One column: its title, and the cell of a row. Further options are those of rich's `add_column`."""

    def __init__(
        self, title: str, cell: Callable[[T], str | Text], *, right: bool = False, min_screen: int = 0, **options: Any
    ) -> None:
        self.title = title
        self.cell = cell
        self.min_screen = min_screen
        """the column is left out on narrower screens"""
        self.options: dict[str, Any] = (
            {"overflow": "fold"} | ({"justify": "right", "no_wrap": True} if right else {}) | options
        )


def table(columns: Iterable[Column[T]], rows: Iterable[T], *, screen_width: int = 0) -> Table:
    """A table with one line for each row, and the columns for which the screen is wide enough."""
    shown = [column for column in columns if screen_width >= column.min_screen]
    result = empty_table()
    for column in shown:
        result.add_column(column.title, **column.options)
    for row in rows:
        result.add_row(*(_cell(column.cell(row)) for column in shown))
    return result


def empty_table(*text: str, numbers: Iterable[str] = ()) -> Table:
    """A table to add rows to: columns of text, then columns of numbers, which are aligned to the right."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for title in text:
        result.add_column(title, overflow="fold")
    for title in numbers:
        result.add_column(title, justify="right")
    return result


def facts(pairs: Iterable[tuple[str, str | Text | None]]) -> Table:
    """Names and values, one pair on a line. A pair without a value is left out."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            grid.add_row(name, _cell(value))
    return grid


def _cell(value: str | Text) -> Text:
    return value if isinstance(value, Text) else Text(printable(value))
