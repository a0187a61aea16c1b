"""Many jobs through many engines on one server, with random kills, and a full account at the end: `make soak`.

Start from `run.soak`. `tasks` is the program the engines run, `account` looks at every job afterwards, `report` keeps
the figures and says them.
"""
