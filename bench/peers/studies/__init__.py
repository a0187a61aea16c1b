"""The same study through each system, one module each: a unit a seed, a small file a unit, files checked.

A module runs in its system's own environment, so it imports that system, the standard library and `unit`, and nothing
else. It is a program: `python -m bench.peers.studies.joblib_study FOLDER UNITS` makes what is missing, and fails if
something still is in the end. What the driver must know (commands, versions) is in `catalog`.
"""
