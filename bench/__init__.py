"""Benchmarks: Mainstay beside hand-written baselines, in one run, with ratios. Start: `make bench`."""
