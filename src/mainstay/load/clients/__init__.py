"""The clients of virtual users, one module per protocol. Start at `port`."""
