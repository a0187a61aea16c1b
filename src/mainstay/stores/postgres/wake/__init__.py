"""Waking idle processes with LISTEN and NOTIFY.

`subscriptions.py` has the subscribers of this process and wakes them after a commit; `listeners.py` registers this
process for the notifications of others.
"""
