"""The report of a batch: as data, as HTML, and its heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .heat_map import HeatMap as HeatMap
    from .model import BatchReport as BatchReport

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".heat_map": "HeatMap",
        ".model": "BatchReport",
    },
)
