"""Everything that writes jobs: inserts, changes, claims, retention.

`changes.py` inserts and applies changes, with `insert_plan.py` (the result of each new job), `completions.py` (the
compact write of finished work) and `statements.py` (any other change); `selection.py` claims, `waits.py` moves
dependants on.
"""
