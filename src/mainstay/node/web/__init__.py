"""Node jobs and nodes in the HTTP API and on the dashboard."""
