"""The REST API: one module per resource. Start at `routes`."""
