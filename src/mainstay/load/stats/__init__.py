"""Numbers of load tests: histograms, windows, thresholds, summaries. No I/O. Start at `model`."""
