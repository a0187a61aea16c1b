"""The same load through each generator: its script, if it takes one, and in `catalog` how it is run and read.

A Python script runs in its generator's own environment, so it imports that, the standard library and `work`, and
nothing else. All scripts do the same: a small GET, a POST of 1 KB, or three steps, each of them checked, of which the
second needs what the first was answered.
"""
