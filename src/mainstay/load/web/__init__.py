"""Load tests in the HTTP API and on the dashboard."""
