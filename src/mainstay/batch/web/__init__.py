"""Batches in the HTTP API and on the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .responses import BatchStatusView as BatchStatusView, OutputPage as OutputPage, ResumeResult as ResumeResult

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".responses": "BatchStatusView OutputPage ResumeResult",
    },
)
