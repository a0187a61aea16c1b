"""Load tests: honest load from Python."""
