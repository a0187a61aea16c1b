"""Connections to the server, and recovery after the loss of one.

`address.py` parses the URL; `pool.py` and `engine.py` run statements and transactions; `permanent.py` is the one
connection that stays open, with the session locks of `liveness.py`. Also `errors.py`, `timeouts.py`, `durability.py`.
"""
