"""What the reports of all kinds share, and metrics for Prometheus.

Layer: beside `web` and `cli`. Start from `metrics.metrics_server` (for `mainstay worker --metrics`), `metrics.expose`
(for a program with a `/metrics` of its own), and `templates` for reports. The reports themselves are in their kinds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .templates import asset as asset, render_page as render_page, template_environment as template_environment

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".templates": "asset render_page template_environment",
    },
)
