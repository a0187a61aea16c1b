"""The decisions as pure functions of row, event, policy, time and random source. No I/O.

Each returns the moves to make, in order; none means that there is nothing to do. The rules read from the table which
state may follow another, so units and jobs share them.
"""
