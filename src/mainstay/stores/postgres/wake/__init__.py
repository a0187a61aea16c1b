"""Waking idle processes with LISTEN and NOTIFY.

`subscriptions.py` the subscribers of this process and whom a commit wakes; `listeners.py` the table that tells other
processes what this one listens for.
"""
