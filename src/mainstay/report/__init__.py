"""Where results go: metrics, for now.

Layer: above app, below cluster. Start from `metrics.serving` (what `mainstay worker --metrics` does) and
`metrics.expose` (for a program that has a `/metrics` of its own).
"""
