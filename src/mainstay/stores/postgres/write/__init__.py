"""Everything that writes jobs: inserts, changes, claims, reports, retention.

`changes.py` inserts and applies changes, with `entry.py` (what becomes of new jobs), `completions.py` (the compact
write of finished work) and `statements.py` (any other change); `selection.py` claims, `waits.py` moves dependants on.
"""
