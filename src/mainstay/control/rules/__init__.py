"""The decisions, as pure functions of (row, what happened, policy, now, chance). No I/O.

Each answers with the moves to make, in order; an empty answer means that nothing is to be done. Which state
may follow which is not known here: rules ask the table, so units and jobs share them.
"""
