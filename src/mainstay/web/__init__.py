"""The HTTP side: a REST API, live updates, a dashboard, a typed client, and slow endpoints that become jobs.

Layer: above everything but the command line. Start from `site.make_site`, which puts the parts together; `mainstay
serve` runs it. Needs the extra `mainstay[web]`; the client needs `mainstay[client]`.
"""
