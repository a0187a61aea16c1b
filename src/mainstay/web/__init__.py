"""The HTTP server: a REST API, live updates and a dashboard.

Layer: beside `cli` and `report`. Start from `site.make_site`, which puts the parts together; `mainstay serve` runs it.
Needs the extra `mainstay[web]`; the client needs `mainstay[client]`.
"""
