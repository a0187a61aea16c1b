"""What the reports of all kinds share, and metrics for Prometheus.

Layer: beside `web` and `cli`. Start from `metrics.metrics_server` (for `mainstay worker --metrics`), `metrics.expose`
(for a program with a `/metrics` of its own), and `templates` for reports. The reports themselves are in their kinds.
"""
