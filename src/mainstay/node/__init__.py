"""Node jobs: a job that runs on every node, and then once at the leader.

Layer: a kind of job, above the worker. `decisions` is the heart: what the placement leader does next, as pure
functions.
"""
