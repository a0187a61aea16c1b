"""Where results go: metrics, and the reports of batches and load tests.

Layer: above app, below cluster. Start from `metrics.serving` (what `mainstay worker --metrics` does) and
`metrics.expose` (for a program that has a `/metrics` of its own); for batches from `batch.batch_report` (the data) and
`batch_html.batch_html` (a page of it); for load tests see `load`.
"""
