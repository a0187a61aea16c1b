"""A server to test against: known latencies, errors and sizes, and its own counts. `mainstay load target`."""
