"""Slow HTTP handlers as jobs, for Starlette and FastAPI: `AsyncEndpoint`."""
