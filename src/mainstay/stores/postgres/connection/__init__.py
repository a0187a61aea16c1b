"""Connections to the server, and what survives the loss of one.

`address.py` the URL; `pool.py` and `engine.py` statements and transactions; `permanent.py` the one connection that
stays, with the session locks of `liveness.py`; `errors.py`, `timeouts.py`, `durability.py`.
"""
