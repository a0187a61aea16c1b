"""The clients that virtual users call, one module per protocol. Start at `port`."""
